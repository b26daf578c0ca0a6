//! A formula that ends before its end.

gpu_kernels::row! {
    fn centre([x]: [f32; 1], wanted: f32) -> f32 {
        let factor = if wanted > 0.0 { wanted } else { return };
        let mean = mean(x);
        (x - mean) * factor
    }
}

fn main() {}
