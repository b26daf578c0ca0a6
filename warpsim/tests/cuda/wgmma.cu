// Products by warpgroups with planted bugs: BUG names one of them, 0 none.
#include "hopper.cuh"
constexpr int HALF_TILE = 8192; // 64 rows of 64 halves.

DEV void put(int *y, const float (&d)[8]) {
  for (int i = 0; i < 8; i++) y[1024 + 8 * threadIdx.x + i] = __float_as_int(d[i]);
}

// A ring of two tiles that a warpgroup multiplies by themselves. 1: the sums are read before they are there; 2: a slot is released while it is
// multiplied; 3: no wgmma.fence before the first.
KERNEL(gemm) {
  __shared__ alignas(1024) char s[2][HALF_TILE];
  __shared__ u64 full[2], empty[2];
  int t = threadIdx.x;
  if (t == 0) {
    for (int k = 0; k < 2; k++) { bar_init(&full[k], 1); bar_init(&empty[k], 128); }
    fence_init();
  }
  __syncthreads();
  if (t >= 128) {
    if (t == 128)
      for (int k = 0; k < 5; k++) {
        if (k > 1) wait(&empty[k & 1], (k / 2 - 1) & 1);
        expect(&full[k & 1], HALF_TILE);
        load(s[k & 1], half, 0, 16 * k, &full[k & 1]);
      }
    return;
  }
  float d[8] = {};
  for (int k = 0; k < 5; k++) {
    wait(&full[k & 1], k / 2 & 1);
    if (BUG != 3) wg_fence();
    for (int i = 0; i < 4; i++) mma_16(d, desc(s[k & 1] + 32 * i), desc(s[k & 1] + 32 * i));
    wg_commit();
    if (BUG == 2) {
      wg_wait<1>();
      arrive(&empty[k & 1]);
    } else if (k) {
      wg_wait<1>();
      arrive(&empty[(k - 1) & 1]);
    }
  }
  if (BUG != 1) wg_wait<0>();
  put(y, d);
}
TWINS(gemm, )

// Threads write the tile themselves. 1: no proxy fence; 2: the fence is behind the barrier, by one warp; 3: no barrier.
KERNEL(written) {
  __shared__ alignas(1024) u32 s[HALF_TILE / 4];
  int t = threadIdx.x;
  float d[8] = {};
  for (int k = 0; k < 2; k++) {
    for (int i = t; i < HALF_TILE / 4; i += 128) s[i] = 0x3f803f80 + k;
    if (BUG == 0 || BUG == 3) fence_async();
    if (BUG != 3) __syncthreads();
    if (BUG == 2 && t < 32) fence_async();
    wg_fence();
    mma_16(d, desc(s), desc(s));
    wg_commit();
    wg_wait<0>();
    __syncthreads();
  }
  put(y, d);
}
TWINS(written, )

// A comes from registers. 1: they are written again before the product is over; 2: nothing is committed before the wait; 3: the sums are scaled
// between two products without a wait.
KERNEL(fragments) {
  __shared__ alignas(1024) u32 s[HALF_TILE / 4];
  int t = threadIdx.x;
  float d[8] = {};
  u32 a[4];
  for (int i = t; i < HALF_TILE / 4; i += 128) s[i] = 0x3f803f80;
  fence_async();
  __syncthreads();
  for (int i = 0; i < 4; i++) a[i] = x[4 * t + i];
  for (int k = 0; k < 3; k++) {
    wg_fence();
    mma_16(d, a, desc(s));
    if (BUG != 2) wg_commit();
    if (BUG != 1 && BUG != 3) wg_wait<0>();
    if (BUG == 1) {
      for (int i = 0; i < 4; i++) asm volatile("add.u32 %0, %0, %1;" : "+r"(a[i]) : "r"(k));
      wg_wait<0>();
    }
    if (BUG == 3) {
      for (int i = 0; i < 8; i++) asm volatile("mul.f32 %0, %0, 0f3F000000;" : "+f"(d[i]));
      wg_wait<0>();
    }
    if (BUG == 0) for (int i = 0; i < 8; i++) d[i] *= 0.5f;
  }
  put(y, d);
}
TWINS(fragments, )

// Descriptors. 1: rows of a stride that leads out of what was written; 2: a tile that starts too far behind; 3: lanes have different ones.
KERNEL(descriptors) {
  extern __shared__ __align__(1024) u32 s[];
  int t = threadIdx.x;
  float d[8] = {};
  for (int i = t; i < HALF_TILE / 4; i += 128) s[i] = 0x3f803f80;
  fence_async();
  __syncthreads();
  wg_fence();
  u64 a = desc(s, BUG == 1 ? 128 : 64) + (BUG == 2 ? 64 : 0) + (BUG == 3 ? t / 4 % 2 * 2 : 0);
  mma_16(d, a, desc(s));
  wg_commit();
  wg_wait<0>();
  put(y, d);
}
TWINS(descriptors, )

// The sums go out through shared memory while the next product runs. 1: the store's source is written again before it was read; 2: no fence before the
// store; 3: the barrier counts one warpgroup too many.
KERNEL(epilogue) {
  __shared__ alignas(1024) u32 s[HALF_TILE / 4];
  __shared__ alignas(128) float o[256];
  int t = threadIdx.x;
  for (int i = t; i < HALF_TILE / 4; i += 128) s[i] = 0x3f803f80;
  fence_async();
  __syncthreads();
  for (int k = 0; k < 3; k++) {
    float d[8] = {};
    wg_fence();
    mma_16(d, desc(s), desc(s));
    wg_commit();
    wg_wait<0>();
    if (t == 0 && BUG != 1) wait_read<0>();
    named(1, BUG == 3 ? 256 : 128);
    for (int i = 0; i < 2; i++) o[t + 128 * i] = d[i];
    if (BUG != 2) fence_async();
    named(1, 128);
    if (t == 0) { store(out, 0, 8 * k, o); commit(); }
  }
  if (t == 0) wait_read<0>();
}
TWINS(epilogue, )

// Two warpgroups take turns. 1: nobody gives the first one its turn; 2: both wait for the same; 3: a count that leaves the other out.
KERNEL(turns) {
  __shared__ int s[128];
  int t = threadIdx.x, group = t / 128, sum = 0;
  if (group == 1 && BUG != 1) named_arrive(1, 256);
  for (int k = 0; k < 3; k++) {
    named(BUG == 2 ? 1 : 1 + group, BUG == 3 ? 128 : 256);
    s[t % 128] = x[t % 128] + k;
    named(3 + group, 128);
    sum += s[127 - t % 128];
    if (k < 2 || group == 0) named_arrive(2 - group, 256);
  }
  y[t] = sum;
}
TWINS(turns, )

// Registers are given and taken. 1: one warp of the group takes more; 2: nobody gave any; 3: more than there are, by decreasing.
KERNEL(registers) {
  __shared__ int s[128];
  int t = threadIdx.x;
  if (t >= 256) {
    if (BUG != 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    s[t - 256] = t;
    named_arrive(1, 384);
  } else {
    if (BUG == 1) { if (t < 32) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); }
    else if (BUG == 3) asm volatile("setmaxnreg.dec.sync.aligned.u32 200;");
    else asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    named(1, 384);
    y[t] = s[t % 128];
  }
}
TWINS(registers, __launch_bounds__(384, 1))
