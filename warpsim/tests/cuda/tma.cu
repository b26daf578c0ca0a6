// Tensor copies with planted bugs: BUG names one of them, 0 none.
#include "hopper.cuh"
constexpr int TILE = 1024; // 8 rows of 32 words.

// A producer warp and consumer warps with a ring of two tiles. 1: the producer does not wait for an empty slot; 2: a parity that
// never turns; 3: half of the bytes are expected.
KERNEL(ring) {
  __shared__ alignas(128) int s[2][256];
  __shared__ u64 full[2], empty[2];
  int t = threadIdx.x;
  if (t == 0) {
    for (int k = 0; k < 2; k++) { bar_init(&full[k], 1); bar_init(&empty[k], 64); }
    fence_init();
  }
  __syncthreads();
  if (t >= 64) {
    if (t == 64)
      for (int k = 0; k < 6; k++) {
        if (k >= 2 && BUG != 1) wait(&empty[k & 1], (k / 2 - 1) & 1);
        expect(&full[k & 1], BUG == 3 ? TILE / 2 : TILE);
        load(s[k & 1], in, 0, 8 * k, &full[k & 1]);
      }
  } else {
    int sum = 0;
    for (int k = 0; k < 6; k++) {
      wait(&full[k & 1], BUG == 2 ? 0 : k / 2 & 1);
      for (int i = 0; i < 4; i++) sum += s[k & 1][64 * i + t];
      arrive(&empty[k & 1]);
    }
    y[t] = sum;
  }
}
TWINS(ring, )

// Two buffers are filled and stored. 1: no proxy fence; 2: waits for a group too few; 3: ends without having waited.
KERNEL(stores) {
  __shared__ alignas(128) int s[2][256];
  int t = threadIdx.x;
  for (int k = 0; k < 4; k++) {
    if (t == 0) wait_read<BUG == 2 ? 2 : 1>();
    __syncthreads();
    for (int i = t; i < 256; i += 64) s[k & 1][i] = x[i] + k;
    if (BUG != 1) fence_async();
    __syncthreads();
    if (t == 0) { store(out, 0, 8 * k, s[k & 1]); commit(); }
  }
  if (t == 0 && BUG != 3) wait_read<0>();
}
TWINS(stores, )

// 1: the fence is where the store is, behind the barrier: the others' writes have none; 2: one that fenced does not meet the others; 3: the barrier
// that follows the wait is missing.
KERNEL(fences) {
  __shared__ alignas(128) int s[256];
  int t = threadIdx.x;
  for (int k = 0; k < 2; k++) {
    for (int i = t; i < 256; i += 64) s[i] = x[i] * k;
    if (BUG != 1) fence_async();
    if (BUG != 2) __syncthreads();
    if (t == 0) {
      if (BUG == 1 && t > 64) fence_async();
      store(out, 0, 8 * k, s);
      commit();
      wait_read<0>();
    }
    if (BUG != 3) __syncthreads();
  }
}
TWINS(fences, )

// Two blocks share their loads. 1: no cluster barrier behind the initialisation; 2: a slot is loaded when only the own block has left it; 3: a block
// ends while the other's loads may come.
KERNEL(multicast) {
  __shared__ alignas(128) int s[2][256];
  __shared__ u64 full, empty;
  int t = threadIdx.x, me = rank(), sum = 0;
  if (t == 0) { bar_init(&full, 1); bar_init(&empty, BUG == 2 ? 32 : 64); fence_init(); }
  if (BUG == 1) __syncthreads(); else cluster_sync();
  for (int k = 0; k < 4; k++) {
    if (t == 0) {
      if (k) wait(&empty, (k - 1) & 1);
      expect(&full, 2 * TILE);
      load_all(s[me], in, 0, 16 * k + 8 * me, &full, 3);
    }
    __syncwarp();
    wait(&full, k & 1);
    for (int i = 0; i < 16; i++) sum += s[i / 8][i % 8 * 32 + t];
    arrive_at(&empty, me);
    if (BUG != 2) arrive_at(&empty, me ^ 1);
  }
  y[t + 32 * me] = sum;
  if (BUG != 3) cluster_sync();
}
TWINS(multicast, __cluster_dims__(2))

// What a tensor copy needs. 1: a slot of half a tile; 2: a slot that is not aligned; 3: the map has two dimensions, the copy one.
KERNEL(shapes) {
  __shared__ alignas(128) int s[BUG == 1 ? 128 : 256 + 32];
  __shared__ u64 full;
  int t = threadIdx.x;
  if (t == 0) {
    bar_init(&full, 1);
    fence_init();
    expect(&full, TILE);
    if (BUG == 3)
      asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(smem(s)), "l"(in), "r"(0), "r"(smem(&full)) : "memory");
    else
      load(s + (BUG == 2 ? 4 : 0), in, 0, 0, &full);
  }
  __syncthreads();
  wait(&full, 0);
  y[t] = s[t];
}
TWINS(shapes, )

// A tile goes through global memory and comes back. 1: waits only until it has been read; 2: one thread waits, another loads without meeting it;
// 3: words that threads stored are loaded without a fence.
KERNEL(back) {
  __shared__ alignas(128) int s[256], r[256];
  __shared__ u64 full;
  int t = threadIdx.x;
  if (t == 0) { bar_init(&full, 1); fence_init(); }
  for (int i = t; i < 256; i += 64) s[i] = i;
  fence_async();
  __syncthreads();
  if (t == 0 && BUG != 3) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" ::"l"(y), "r"(smem(s)) : "memory");
    commit();
    if (BUG == 1) wait_read<0>(); else wait_all<0>();
  }
  if (BUG == 3) for (int i = t; i < 256; i += 64) y[i] = i;
  if (BUG != 2) __syncthreads();
  if (t == 32) {
    expect(&full, TILE);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(smem(r)), "l"(y), "r"(smem(&full)) : "memory");
  }
  wait(&full, 0);
  y[512 + t] = r[255 - t];
  __syncthreads();
  if (t == 0) wait_read<0>();
}
TWINS(back, )

// Sums by a reduction in global memory. 1: no proxy fence; 2: the tile is used again before it has been read; 3: the result is read before it is there.
KERNEL(reduce) {
  __shared__ alignas(128) int s[64];
  int t = threadIdx.x;
  for (int k = 0; k < 3; k++) {
    s[t] = x[64 * k + t];
    if (BUG != 1) fence_async();
    __syncthreads();
    if (t == 0) {
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 256;" ::"l"(y), "r"(smem(s)) : "memory");
      commit();
      if (k < 2 && BUG != 2) wait_read<0>();
      if (k == 2 && BUG == 3) wait_read<0>();
      if (k == 2 && BUG != 3) wait_all<0>();
    }
    __syncthreads();
  }
  y[512 + t] = y[t];
}
TWINS(reduce, )

// Persistent: several works through one ring of three slots. 1: the phase starts anew with each work; 2: the empty barriers count warps and all
// threads arrive; 3: slots are released before they have been read.
KERNEL(persistent) {
  __shared__ alignas(128) int s[3][256];
  __shared__ u64 full[3], empty[3];
  int t = threadIdx.x;
  if (t == 0) {
    for (int k = 0; k < 3; k++) { bar_init(&full[k], 1); bar_init(&empty[k], 2); }
    fence_init();
  }
  __syncthreads();
  int slot = 0, phase = 0, sum = 0;
  for (int work = 0; work < 3; work++) {
    if (BUG == 1) phase = 0;
    for (int k = 0; k < 4; k++) {
      if (t >= 64) {
        if (t == 64) {
          wait(&empty[slot], phase ^ 1);
          expect(&full[slot], TILE);
          load(s[slot], in, 0, 8 * k, &full[slot]);
        }
      } else {
        wait(&full[slot], phase);
        if (BUG == 3 && t % 32 == 0) arrive(&empty[slot]);
        for (int i = 0; i < 4; i++) sum += s[slot][64 * i + t];
        __syncwarp();
        if (BUG == 2 || BUG != 3 && t % 32 == 0) arrive(&empty[slot]);
      }
      if (++slot == 3) { slot = 0; phase ^= 1; }
    }
  }
  if (t < 64) y[t] = sum;
}
TWINS(persistent, )

// A tensor map that the kernel makes out of another. 1: no fence before it is used; 2: used without meeting those who made it; 3: its new address leaves
// no room for a tile.
KERNEL(remade) {
  __shared__ alignas(128) int m[32], s[256];
  __shared__ u64 full;
  int t = threadIdx.x;
  const int *made = y + 2048;
  if (t == 32) { bar_init(&full, 1); fence_init(); }
  __syncthreads();
  if (t < 32) {
    m[t] = ((const int *)in)[t];
    __syncwarp();
    if (t == 0)
      asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(smem(m)), "l"(x + (BUG == 3 ? 4000 : 0)) : "memory");
    __syncwarp();
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(made), "r"(smem(m)) : "memory");
  }
  if (BUG != 2) __syncthreads();
  if (t == 32) {
    if (BUG != 1) asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(made) : "memory");
    expect(&full, TILE);
    load(s, (const CUtensorMap *)made, 0, 0, &full);
  }
  wait(&full, 0);
  y[t] = s[255 - t];
}
TWINS(remade, )
