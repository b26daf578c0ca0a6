//! A reduction does not stand alone.

gpu_kernels::row! {
    fn centre([x]: [f32; 1], count: f32) -> f32 {
        let mean = sum(x) / count;
        x - mean
    }
}

fn main() {}
