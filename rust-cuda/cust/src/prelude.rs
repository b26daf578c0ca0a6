//! What most programs need: `use cust::prelude::*;`.

pub use crate::context::{Context, ContextFlags, CurrentContext};
pub use crate::device::{Device, DeviceAttribute};
pub use crate::error::{CudaError, CudaResult, ErrorCode};
pub use crate::event::{Event, EventFlags, EventStatus};
pub use crate::function::{BlockSize, Function, GridSize};
pub use crate::launch;
pub use crate::memory::{
    AsyncCopyDestination, CopyDestination, DeviceBox, DeviceBuffer, DeviceCopy, DevicePointer, LockedBuffer,
};
pub use crate::module::Module;
pub use crate::stream::{Stream, StreamFlags};
pub use crate::{CudaFlags, init, quick_init};
