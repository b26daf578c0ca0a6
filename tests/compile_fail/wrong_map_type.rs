//! A formula of something else than f32.

gpu_kernels::map! {
    fn positive(x: f32) -> f32 {
        x > 0.0
    }
}

fn main() {}
