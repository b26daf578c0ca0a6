//! Devices, streams, memory and tensors: what operators are launched with. Knows no operator.

pub(crate) mod any;
mod backend;
pub(crate) mod device;
pub(crate) mod dtype;
pub(crate) mod environment;
pub(crate) mod error;
pub(crate) mod file;
pub(crate) mod host_tensor;
mod info;
pub mod kernels;
pub(crate) mod layout;
mod mutex;
mod part;
pub(crate) mod placed;
pub mod profile;
mod queue;
pub(crate) mod roof;
pub(crate) mod scratch;
pub(crate) mod shape;
mod shown;
pub mod sim;
pub(crate) mod storage;
pub(crate) mod stream;
pub(crate) mod tensor;
pub(crate) mod tensor_map;
pub mod tuned;
pub(crate) mod view;
