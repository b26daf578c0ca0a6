// Odds and ends of CUDA C++: local arrays, pointers to functions, packed arithmetic, constants, structures, inline PTX.
#include <cassert>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
extern "C" __global__ void local_arrays(const int *x, int *y) {
  int stack[16], n = 0, v = x[threadIdx.x];
  while (v) { stack[n++] = v & 7; v >>= 3; }
  int s = 0;
  for (int i = 0; i < n; i++) s = s * 8 + stack[i];
  y[threadIdx.x] = s;
}
typedef int (*Op)(int, int);
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
extern "C" __global__ void pointers(const int *x, int *y, int which) {
  int i = threadIdx.x;
  Op f = which ? times : plus;
  y[i] = f(x[i], i);
}
extern "C" __global__ void dots(const int *a, const int *b, int *y) {
  int i = threadIdx.x, n = blockDim.x;
  y[i] = __dp4a(a[i], b[i], 5);
  y[n + i] = __dp4a((unsigned)a[i], (unsigned)b[i], 5u);
  y[2 * n + i] = __dp2a_lo(a[i], b[i], 7);
  y[3 * n + i] = __dp2a_hi((unsigned)a[i], (unsigned)b[i], 7u);
  y[4 * n + i] = __vadd4(a[i], b[i]) ^ __vcmpgtu4(a[i], b[i]);
  y[5 * n + i] = __viaddmax_s32(a[i], b[i], 3) + __vimin3_s32(a[i], b[i], i);
}
extern "C" __global__ void packed(const __half2 *a, const __half2 *b, __half2 *y, const __nv_bfloat162 *p, __nv_bfloat162 *q) {
  int i = threadIdx.x, n = blockDim.x;
  __half2 u = a[i], v = b[i];
  y[i] = __hfma2_relu(u, v, u);
  y[n + i] = __hmax2(__hneg2(u), h2sqrt(__habs2(v)));
  y[2 * n + i] = __h2div(u, v);
  y[3 * n + i] = __floats2half2_rn(__hbgt2(u, v) ? 1.f : 0.f, __heq(u.x, u.x));
  y[4 * n + i] = __lowhigh2highlow(__hgt2(u, v));
  q[i] = __hfma2(p[i], p[i], __float2bfloat162_rn(0.5f));
  q[n + i] = __hmin2(p[i], h2exp(p[i]));
  __nv_fp8x2_e4m3 e(__half22float2(u));
  y[5 * n + i] = __half2(e);
}
struct Params { float scale[5]; short shift; const float *x; double bias; };
__constant__ float weights[4] = {1.f, 2.f, 4.f, 8.f};
extern "C" __global__ void structures(Params p, float *y) {
  int i = threadIdx.x;
  y[i] = __ldcs(p.x + i) * p.scale[i % 5] * weights[i % 4] + p.shift + (float)p.bias;
}
extern "C" __global__ void says(const char *name) {
  printf("%s %c %u %lld %x %08.3f %e %p%%\n", name, 'q', 4000000000u, -5000000000ll, 255, 3.14159, 1e10, (void *)0);
  assert(threadIdx.x < 32 && "too many");
}
extern "C" __global__ void warps(int *x) {
  using Reduce = cub::WarpReduce<int, 16>;
  using Scan = cub::WarpScan<int>;
  __shared__ Reduce::TempStorage a[4];
  __shared__ Scan::TempStorage b[2];
  int v = x[threadIdx.x], s, head = Reduce(a[threadIdx.x / 16]).HeadSegmentedSum(v, threadIdx.x % 5 == 0);
  Scan(b[threadIdx.x / 32]).ExclusiveScan(v, s, -1000000, [](int l, int r) { return l > r ? l : r; });
  x[threadIdx.x] = threadIdx.x % 5 == 0 || threadIdx.x % 16 == 0 ? head ^ s : s;
}
extern "C" __global__ void inlined(const unsigned *x, unsigned *y) {
  unsigned a = x[threadIdx.x], r, lane; unsigned long long t;
  asm volatile("{ .reg .pred p; .reg .b32 t; setp.gt.u32 p, %1, 100; @p bra big; mov.u32 %0, 1; bra done; big: shr.u32 t, %1, 1; mov.u32 %0, t; done: }" : "=r"(r) : "r"(a));
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm("mad.wide.u32 %0, %1, %2, 7;" : "=l"(t) : "r"(a), "r"(lane));
  long long before = clock64(); __nanosleep(20);
  y[threadIdx.x] = r + (unsigned)t + (clock64() < before) + (__isShared(&y) ? 1 : 0);
}

// Quotients and remainders of 128 bits, for which the compiler has functions of its own.
extern "C" __global__ void wide(const unsigned long long *x, unsigned long long *y) {
  int i = threadIdx.x;
  unsigned __int128 a = (unsigned __int128)x[4 * i] << 64 | x[4 * i + 1], b = (unsigned __int128)x[4 * i + 2] << 64 | x[4 * i + 3];
  unsigned __int128 q = a / b, r = a % b;
  y[4 * i] = q >> 64, y[4 * i + 1] = q, y[4 * i + 2] = r >> 64, y[4 * i + 3] = r;
}
