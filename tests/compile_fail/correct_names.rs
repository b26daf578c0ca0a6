//! Formulas with the names that the macros' own variables might have.

gpu_kernels::zip! {
    pub fn rows([x, y]: [f32; 2]) -> f32 { x + y }
    pub fn d([x, y]: [f32; 2]) -> f32 { x - y }
    pub fn i([x, y]: [f32; 2]) -> f32 { x * y }
    pub fn inputs([x, y]: [f32; 2]) -> f32 { x / y }
    pub fn strides([x, y]: [f32; 2], factor: f32) -> f32 { factor * x + y }
}

gpu_kernels::map! {
    pub fn output(x: f32) -> f32 { -x }
}

gpu_kernels::row! {
    pub fn row([x]: [f32; 1]) -> f32 {
        let total = sum(x);
        x / total
    }

    pub fn at([x]: [f32; 1], [column, columns]: [usize; 2]) -> f32 {
        let total = sum(x * column as f32);
        x - total / columns as f32
    }

    pub fn formula([x]: [f32; 1]) -> f32 {
        let greatest = max(x);
        x - greatest
    }
}

fn main() {
    assert_eq!(rows.value(1.0, 2.0) + d.value(1.0, 2.0) + i.value(1.0, 2.0) + inputs.value(1.0, 2.0), 4.5);
    assert_eq!(strides(3.0).value(1.0, 2.0) + output.value(5.0), 0.0);
    let mut values = [0.0; 2];
    row.values([&[1.0, 3.0]], &mut values);
    assert_eq!(values, [0.25, 0.75]);
    at.values([&[1.0, 4.0]], &mut values);
    assert_eq!(values, [-1.0, 2.0]);
    formula.values([&[1.0, 4.0]], &mut values);
    assert_eq!(values, [-3.0, 0.0]);
}
