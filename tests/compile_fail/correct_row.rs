//! A formula over rows, as the other files have it wrong.

gpu_kernels::row! {
    /// y = x / max(x), and twice that where the place is odd.
    fn share([x]: [f32; 1], [column, columns]: [usize; 2], factor: f32) -> f32 {
        let (total, greatest) = (sum(x), max(x.abs()));
        let scale = factor / greatest + total / columns as f32;
        {
            let y = x * scale;
            if column % 2 == 0 { y } else { 2.0 * y }
        }
    }
}

fn main() {
    share(1.0).values([&[1.0]], &mut [0.0]);
}
