//! A reduction that not all rows come to.

gpu_kernels::row! {
    fn centre([x]: [f32; 1], wanted: f32) -> f32 {
        let mean = if wanted > 0.0 { mean(x) } else { 0.0 };
        x - mean
    }
}

fn main() {}
