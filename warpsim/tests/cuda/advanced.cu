// Asynchronous copies, barriers, cooperative groups, half-precision arithmetic, atomics of every type.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>
#include <cuda_pipeline.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
namespace cg = cooperative_groups;
// Warp-specialised: warp 0 fills a two-stage ring through cuda::barrier, the others drain it.
extern "C" __global__ void specialised(const float *x, float *y, int tiles) {
  __shared__ alignas(16) float ring[2][96];
  using B = cuda::barrier<cuda::thread_scope_block>;
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ B full[2], empty[2];
  if (threadIdx.x == 0) for (int s = 0; s < 2; s++) { init(&full[s], 128); init(&empty[s], 128); }
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int t = 0; t < tiles; t++) {
      int s = t % 2;
      if (t >= 2) empty[s].arrive_and_wait();
      for (int i = threadIdx.x; i < 96; i += 32) ring[s][i] = x[t * 96 + i];
      (void)full[s].arrive();
    }
  } else {
    for (int t = 0; t < tiles; t++) {
      int s = t % 2, i = threadIdx.x - 32;
      full[s].arrive_and_wait();
      y[t * 96 + i] = ring[s][i] * 2.f;
      if (t + 2 < tiles) (void)empty[s].arrive();
    }
  }
}
extern "C" __global__ void pipelined(const float4 *x, float4 *y, int n) {
  __shared__ float4 buf[4][64];
  int t = threadIdx.x;
  for (int s = 0; s < 3; s++) { if (s < n) __pipeline_memcpy_async(&buf[s][t], &x[s * 64 + t], 16); __pipeline_commit(); }
  for (int i = 0; i < n; i++) {
    __pipeline_wait_prior(2);
    __syncthreads();
    float4 v = buf[i % 4][63 - t];
    v.x += 1; v.w *= 3;
    y[i * 64 + t] = v;
    int next = i + 3;
    if (next < n) __pipeline_memcpy_async(&buf[next % 4][t], &x[next * 64 + t], 16, next == n - 1 ? 8 : 0);
    __pipeline_commit();
  }
}
extern "C" __global__ void groups(const int *x, int *out) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<16>(block);
  int v = x[block.thread_rank()];
  int sum = cg::reduce(tile, v, cg::plus<int>());
  int big = cg::reduce(tile, v, cg::greater<int>());
  if (v & 1) { auto active = cg::coalesced_threads(); sum += active.size(); }
  out[block.thread_rank()] = sum * 1000 + big;
}
extern "C" __global__ void halves(const __half *a, const __half *b, __half *o, const __nv_bfloat16 *p, __nv_bfloat16 *q, unsigned char *e, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  o[i] = __hadd(a[i], b[i]); o[n + i] = __hmul(a[i], b[i]); o[2 * n + i] = __hfma(a[i], b[i], a[i]); o[3 * n + i] = __hmax(a[i], b[i]);
  o[4 * n + i] = __hdiv(a[i], b[i]); o[5 * n + i] = hexp(a[i]);
  q[i] = __hadd(p[i], p[(i + 1) % n]); q[n + i] = __hfma(p[i], p[i], p[(i + 1) % n]);
  __half2 v = __halves2half2(a[i], b[i]); v = __hfma2(v, v, v); o[6 * n + i] = __low2half(v); o[7 * n + i] = __high2half(v);
  e[i] = __nv_cvt_float_to_fp8(__half2float(a[i]) * 100.f, __NV_SATFINITE, __NV_E4M3);
}
extern "C" __global__ void atomics(int *i, unsigned *u, unsigned long long *l, float *f, double *d, __half2 *h) {
  int t = threadIdx.x + blockIdx.x * blockDim.x;
  atomicAdd(&i[0], t); atomicMin(&i[1], -t); atomicMax(&i[2], t); atomicAnd(&i[3], ~(1 << (t % 32))); atomicOr(&i[4], 1 << (t % 32)); atomicXor(&i[5], t);
  atomicInc(&u[0], 9); atomicDec(&u[1], 9); atomicExch(&u[2], 7);
  atomicAdd(&l[0], (unsigned long long)t << 33); atomicMax(&l[1], (unsigned long long)t);
  atomicAdd(&f[0], 0.5f); atomicAdd(&d[0], 0.25); atomicAdd(&h[0], __floats2half2_rn(1.f, 2.f));
  unsigned old = u[3], seen;
  do { seen = old; old = atomicCAS(&u[3], seen, seen + 3); } while (old != seen);
}
// A lock taken by single lanes of the same warp: needs forward progress of diverged lanes.
extern "C" __global__ void spin_lock(int *lock, volatile int *count) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) { __threadfence(); *count = *count + 1; __threadfence(); atomicExch(lock, 0); done = true; }
  }
}
