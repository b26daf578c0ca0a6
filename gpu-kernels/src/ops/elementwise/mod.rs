//! Operators that treat every element alike: their traffic is [`map`](mod@crate::map)'s, and each file is its formula.

pub mod add;
pub mod bias_mask_scale_add;
pub mod cast;
pub mod copy;
pub mod map;
pub mod sin2_cos2;
pub mod zip;
