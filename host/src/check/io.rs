//! Reading and writing safetensors files.

mod whole;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as FileDtype, Metadata, SafeTensorError, TensorView};

use crate::ops::model::ArgInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result, printable};
use crate::runtime::host_tensor::HostTensor;

/// Reads a tensor for each argument, by its name; optional ones may be missing. Other tensors in the file are ignored.
pub fn read<'a>(path: &Path, args: impl IntoIterator<Item = &'a ArgInfo>) -> Result<Vec<(&'static str, HostTensor)>> {
    let bytes = File::open(path).and_then(bytes).map_err(|e| Error::file(path, format!("cannot be read: {e}")))?;
    parse(path, &bytes, args)
}

/// All of a safetensors file, and no more than shows it where more follows. Of anything else the beginning: a device may have no end.
pub(crate) fn bytes(mut file: impl Read) -> io::Result<Vec<u8>> {
    // The longest that the format allows.
    const HEADER: u64 = 100_000_000;
    let mut bytes = Vec::new();
    file.by_ref().take(8).read_to_end(&mut bytes)?;
    let length = bytes.as_slice().try_into().map(u64::from_le_bytes);
    let Some(length) = length.ok().filter(|length| (1..=HEADER).contains(length)) else { return Ok(bytes) };
    file.by_ref().take(length).read_to_end(&mut bytes)?;
    if let Ok(header) = serde_json::from_slice::<Metadata>(&bytes[8..]) {
        // A byte more shows that the file goes on.
        file.take((header.data_len() as u64).saturating_add(1)).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// [`read`] for the contents of `path`, which have been read already.
pub fn parse<'a>(
    path: &Path,
    bytes: &[u8],
    args: impl IntoIterator<Item = &'a ArgInfo>,
) -> Result<Vec<(&'static str, HostTensor)>> {
    let args: Vec<_> = args.into_iter().collect();
    let file = SafeTensors::deserialize(bytes).map_err(|e| Error::file(path, malformed(&e)))?;
    let read = |arg: &&ArgInfo| match file.tensor(arg.name) {
        Ok(tensor) => Some(from_file(arg.name, &tensor).map(|t| (arg.name, t)).map_err(|e| Error::file(path, e))),
        Err(_) if arg.optional => None,
        Err(_) => Some(Err(Error::file(path, missing(arg.name, &args, &file)))),
    };
    args.iter().filter_map(read).collect()
}

/// The names of the tensors of a file that [`parse`] does not read.
pub fn ignored<'a>(bytes: &[u8], args: impl IntoIterator<Item = &'a ArgInfo>) -> Vec<String> {
    let args: Vec<_> = args.into_iter().map(|arg| arg.name).collect();
    let Ok(file) = SafeTensors::deserialize(bytes) else { return Vec::new() };
    let mut ignored: Vec<_> = file.names().into_iter().filter(|name| !args.contains(name)).map(str::to_owned).collect();
    ignored.sort_unstable();
    ignored
}

/// Writes tensors under their names. The file is written atomically.
pub fn write(path: &Path, tensors: &[(&str, HostTensor)]) -> Result<()> {
    whole::write(path, &serialize(path, tensors)?)
}

/// The bytes that [`write()`] writes.
pub fn serialize(path: &Path, tensors: &[(&str, HostTensor)]) -> Result<Vec<u8>> {
    let fail = |e: &SafeTensorError| Error::file(path, format!("cannot be written: {e}"));
    let mut views = Vec::new();
    for (name, tensor) in tensors {
        let shape = tensor.shape().to_vec();
        let view = TensorView::new(to_file_dtype(tensor.dtype()), shape, tensor.bytes()).map_err(|e| fail(&e))?;
        views.push((*name, view));
    }
    safetensors::serialize(views, None).map_err(|e| fail(&e))
}

/// Writes a JSON document. The file is written atomically.
#[cfg(feature = "cli")]
pub(crate) fn write_json(path: &Path, document: &impl serde::Serialize) -> Result<()> {
    let text =
        serde_json::to_string_pretty(document).map_err(|e| Error::file(path, format!("cannot be written: {e}")))?;
    write_text(path, &(text + "\n"))
}

/// Writes a text. The file is written atomically.
#[cfg(feature = "cli")]
pub(crate) fn write_text(path: &Path, text: &str) -> Result<()> {
    whole::write(path, text.as_bytes())
}

fn malformed(error: &SafeTensorError) -> String {
    match error {
        // A whole file may have a type that is not known here, such as complex numbers.
        SafeTensorError::InvalidHeaderDeserialization(json) if json.is_data() => {
            format!("has a header that cannot be read: {}", printable(&json.to_string()))
        }
        _ => format!("is not a whole safetensors file: {}", printable(&error.to_string())),
    }
}

fn missing(name: &str, args: &[&ArgInfo], file: &SafeTensors<'_>) -> String {
    let mut there = file.names();
    there.sort_unstable();
    let there = if there.is_empty() { "none".to_owned() } else { printable(&there.join(", ")).into_owned() };
    let wanted: Vec<_> = args.iter().map(|arg| arg.name).collect();
    format!("has no tensor `{name}`: wanted are {}; the file has {there}", wanted.join(", "))
}

fn from_file(name: &str, tensor: &TensorView<'_>) -> Result<HostTensor, String> {
    let Some(dtype) = from_file_dtype(tensor.dtype()) else {
        let known: Vec<_> = DType::ALL.iter().map(|d| d.name()).collect();
        return Err(format!("`{name}` is of type {:?}, none of {}", tensor.dtype(), known.join(", ")));
    };
    HostTensor::new(dtype, tensor.shape(), tensor.data().to_vec()).map_err(|e| format!("`{name}`: {e}"))
}

fn from_file_dtype(dtype: FileDtype) -> Option<DType> {
    DType::ALL.iter().copied().find(|d| to_file_dtype(*d) == dtype)
}

fn to_file_dtype(dtype: DType) -> FileDtype {
    match dtype {
        DType::F32 => FileDtype::F32,
        DType::F64 => FileDtype::F64,
        DType::F16 => FileDtype::F16,
        DType::BF16 => FileDtype::BF16,
        DType::F8E4M3 => FileDtype::F8_E4M3,
        DType::F8E5M2 => FileDtype::F8_E5M2,
        DType::F8E8M0 => FileDtype::F8_E8M0,
        DType::I8 => FileDtype::I8,
        DType::U8 => FileDtype::U8,
        DType::I16 => FileDtype::I16,
        DType::U16 => FileDtype::U16,
        DType::I32 => FileDtype::I32,
        DType::U32 => FileDtype::U32,
        DType::I64 => FileDtype::I64,
        DType::U64 => FileDtype::U64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::registry::OPERATORS;

    fn error(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.safetensors");
        std::fs::write(&path, bytes).unwrap();
        let error = read(&path, OPERATORS[0].info().inputs()).unwrap_err();
        assert!(matches!(&error, Error::File { path: p, .. } if *p == path), "{error}");
        error.to_string()
    }

    fn header(json: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn every_dtype_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.safetensors");
        let info = OPERATORS[0].info();
        for dtype in DType::ALL {
            let tensor = HostTensor::from_f64(*dtype, [2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
            let named: Vec<_> = info.inputs().map(|arg| (arg.name, tensor.clone())).collect();
            write(&path, &named).unwrap();
            assert_eq!(read(&path, info.inputs()).unwrap(), named);
        }
    }

    #[test]
    fn broken_files_are_refused() {
        assert!(error(b"").contains("not a whole safetensors file"));
        assert!(error(b"hello, world").contains("not a whole safetensors file"));
        assert!(error(&[0xFF; 64]).contains("not a whole safetensors file"));
        assert!(error(&header("{", &[])).contains("not a whole safetensors file"));
        let name = OPERATORS[0].info().args[0].name;
        let short = format!(r#"{{"{name}":{{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}}}"#);
        assert!(error(&header(&short, &[0; 8])).contains("not a whole safetensors file"));
        let lies = format!(r#"{{"{name}":{{"dtype":"F32","shape":[5],"data_offsets":[0,16]}}}}"#);
        assert!(error(&header(&lies, &[0; 16])).contains("not a whole safetensors file"));
    }

    #[test]
    fn what_has_no_end_is_not_read_to_it() {
        for byte in [0, 1, 0xFF] {
            assert_eq!(bytes(io::repeat(byte).take(1 << 20)).unwrap(), [byte; 8]);
        }
        let whole = header(r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, &[7; 4]);
        assert_eq!(bytes(&whole[..]).unwrap(), whole);
        assert_eq!(bytes(whole.chain(io::repeat(0).take(1 << 20))).unwrap().len(), whole.len() + 1);
        let no_header = header("{", &[]);
        assert_eq!(bytes(no_header.chain(io::repeat(0).take(1 << 20))).unwrap(), no_header);
        assert_eq!(bytes(&whole[..3]).unwrap(), whole[..3]);
    }

    #[test]
    fn missing_tensors_and_strange_types_are_named() {
        let other = r#"{"unexpected":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        let text = error(&header(other, &[0; 4]));
        let name = OPERATORS[0].info().args[0].name;
        assert!(text.contains(&format!("has no tensor `{name}`")) && text.contains("unexpected"), "{text}");
        let hostile = r#"{"\u001b[31m\nerror: ":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        let text = error(&header(hostile, &[0; 4]));
        assert!(text.ends_with(r"the file has \u{1b}[31m\nerror: ") && !text.contains('\n'), "{text}");
        let strange = format!(r#"{{"{name}":{{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}}}"#);
        assert!(error(&header(&strange, &[0])).contains("BOOL"));
        let unknown = r#"{"z":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}"#;
        let text = error(&header(unknown, &[0; 8]));
        assert!(text.contains("has a header that cannot be read: unknown variant `C64`, expected one of "), "{text}");
    }

    #[test]
    fn files_that_cannot_be_opened_or_written_are_named() {
        let nowhere = Path::new("/nonexistent/folder/t.safetensors");
        assert!(read(nowhere, OPERATORS[0].info().inputs()).unwrap_err().to_string().contains("/nonexistent"));
        assert!(write(nowhere, &[]).unwrap_err().to_string().contains("cannot be written"));
    }
}
