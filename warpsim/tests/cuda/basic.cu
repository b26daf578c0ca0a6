// Kernels in ordinary CUDA C++: tiled GEMM, reductions, scan, histogram, recursion, switch, printf, math.
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void sgemm(const float *A, const float *B, float *C, int M, int N, int K) {
  __shared__ float As[16][128];
  __shared__ float Bs[16][128];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float acc[8][8] = {};
  int bm = blockIdx.y * 128, bn = blockIdx.x * 128;
  for (int k0 = 0; k0 < K; k0 += 16) {
    for (int i = threadIdx.x; i < 128 * 16; i += 256) { int r = i / 16, c = i % 16; As[c][r] = A[(bm + r) * K + k0 + c]; }
    for (int i = threadIdx.x; i < 128 * 16; i += 256) { int r = i / 128, c = i % 128; Bs[r][c] = B[(k0 + r) * N + bn + c]; }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; k++) {
      float a[8], b[8];
#pragma unroll
      for (int i = 0; i < 8; i++) { a[i] = As[k][ty * 8 + i]; b[i] = Bs[k][tx * 8 + i]; }
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) acc[i][j] += a[i] * b[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) C[(bm + ty * 8 + i) * N + bn + tx * 8 + j] = acc[i][j];
}
__device__ __noinline__ float f(float x, int n) { if (n <= 0) return x; return f(x * 1.5f, n - 1) + 1.f; }
extern "C" __global__ void recurse(float *o) { o[threadIdx.x] = f(o[threadIdx.x], threadIdx.x % 5); }
extern "C" __global__ void hello(int n) { if (threadIdx.x < n) printf("hi %d %5.2f %s\n", threadIdx.x, threadIdx.x * 0.5, "there"); }
extern "C" __global__ void switcher(int *o, float *p) {
  int t = threadIdx.x;
  switch (o[t]) {
    case 0: o[t] = 5; break;
    case 1: o[t] = t * 7; break;
    case 2: p[t] = sinf(p[t]); break;
    case 3: p[t] = expf(p[t]); break;
    case 4: p[t] = p[t] / 3.1f; break;
    case 5: o[t] = o[t] / (t + 1); break;
    case 6: o[t] = __popc(t); break;
  }
}
__device__ float warp_sum(float v) { for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o); return v; }
extern "C" __global__ void reduce(const float *x, float *out, int n) {
  __shared__ float part[32];
  float s = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
  s = warp_sum(s);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
    s = warp_sum(s);
    if (threadIdx.x == 0) atomicAdd(out, s);
  }
}
extern "C" __global__ void scan(const int *x, int *y, int n) {
  extern __shared__ int buf[];
  int t = threadIdx.x;
  buf[t] = t < n ? x[t] : 0;
  __syncthreads();
  for (int d = 1; d < blockDim.x; d *= 2) {
    int v = t >= d ? buf[t - d] : 0;
    __syncthreads();
    buf[t] += v;
    __syncthreads();
  }
  if (t < n) y[t] = buf[t];
}
extern "C" __global__ void histogram(const unsigned char *x, unsigned *h, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) if (local[i]) atomicAdd(&h[i], local[i]);
}
// Decoupled look-back: later blocks spin on flags of earlier ones.
extern "C" __global__ void chained_scan(const int *x, int *y, volatile int *flag, volatile int *sum) {
  __shared__ int before;
  int t = threadIdx.x, b = blockIdx.x;
  if (t == 0) {
    int s = 0;
    for (int i = 0; i < blockDim.x; i++) s += x[b * blockDim.x + i];
    int p = 0;
    if (b > 0) { while (flag[b - 1] == 0) {} __threadfence(); p = sum[b - 1]; }
    sum[b] = p + s;
    __threadfence();
    flag[b] = 1;
    before = p;
  }
  __syncthreads();
  int s = before;
  for (int i = 0; i <= t; i++) s += x[b * blockDim.x + i];
  y[b * blockDim.x + t] = s;
}
extern "C" __global__ void math(const float *x, const double *d, float *o, double *od, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  float v = x[i]; double w = d[i];
  o[i] = expf(v); o[n + i] = logf(fabsf(v)); o[2 * n + i] = tanhf(v); o[3 * n + i] = sinf(v * 100); o[4 * n + i] = powf(fabsf(v), 1.7f);
  o[5 * n + i] = v / 3.7f; o[6 * n + i] = sqrtf(fabsf(v)); o[7 * n + i] = erff(v); o[8 * n + i] = __float2half_rn(v); o[9 * n + i] = __bfloat162float(__float2bfloat16(v));
  od[i] = exp(w); od[n + i] = log(fabs(w)); od[2 * n + i] = sin(w * 100); od[3 * n + i] = w / 3.7; od[4 * n + i] = sqrt(fabs(w)); od[5 * n + i] = cbrt(w);
}
extern "C" __global__ void integers(const long long *a, const long long *b, long long *o, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  long long x = a[i], y = b[i]; int p = (int)x, q = (int)y; unsigned u = (unsigned)x, v = (unsigned)y;
  unsigned long long ux = x, uy = y;
  o[i] = x / y; o[n + i] = x % y; o[2 * n + i] = ux / uy; o[3 * n + i] = p / q; o[4 * n + i] = u % v; o[5 * n + i] = __mul64hi(x, y);
  o[6 * n + i] = __umulhi(u, v); o[7 * n + i] = __clz(p); o[8 * n + i] = __brevll(x); o[9 * n + i] = __ffsll(x); o[10 * n + i] = __byte_perm(u, v, 0x7531);
  o[11 * n + i] = __funnelshift_l(u, v, q & 31); o[12 * n + i] = (short)p * (short)q; o[13 * n + i] = (signed char)p >> 2; o[14 * n + i] = __popcll(x);
  o[15 * n + i] = (long long)(__int128)x * y >> 3; o[16 * n + i] = (u & v) ^ (u | ~v); o[17 * n + i] = __sad(p, q, 5);
}
extern "C" __global__ void votes(unsigned *o) {
  int t = threadIdx.x;
  o[t] = __ballot_sync(~0u, t % 3 == 0);
  o[32 + t] = __match_any_sync(~0u, t % 4);
  o[64 + t] = __reduce_add_sync(~0u, t);
  o[96 + t] = __shfl_up_sync(~0u, t, 3, 8);
  o[128 + t] = __shfl_down_sync(~0u, t, 5);
  o[160 + t] = __shfl_sync(~0u, t, t * 5, 16);
  if (t & 1) o[192 + t] = __activemask(); else o[192 + t] = __ballot_sync(0x55555555, t > 9);
}
