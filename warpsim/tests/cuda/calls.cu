// Virtual functions and a table of function pointers, called by lanes of one warp with different targets.
struct Shape {
    __device__ virtual int area(int x) const = 0;
};
struct Square : Shape {
    __device__ int area(int x) const override { return x * x; }
};
struct Strip : Shape {
    int width;
    __device__ Strip(int w) : width(w) {}
    __device__ int area(int x) const override { return x * width; }
};

typedef int (*Function)(int);
__device__ __noinline__ int next(int x) { return x + 1; }
__device__ __noinline__ int thrice(int x) {
    if (x & 8) return 7;
    return x * 3;
}
__device__ __noinline__ int look_up(int x) {
    int a[8];
    for (int k = 0; k < 8; k++) a[k] = x + k;
    return a[x & 7];
}
__device__ Function table[3] = {next, thrice, look_up};

extern "C" __global__ void calls(int *out) {
    int t = threadIdx.x;
    Square square;
    Strip strip(10);
    const Shape *shape = t & 1 ? (const Shape *)&square : (const Shape *)&strip;
    out[t] = shape->area(t) * 1000 + table[t % 3](t);
}
