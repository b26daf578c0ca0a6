// Clusters that write into each other's shared memory, with planted bugs: BUG names one of them, 0 none.
#include "hopper.cuh"

DEV void st_async(void *to, int v, u64 *bar, u32 rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(peer(to, rank)), "r"(v), "r"(peer(bar, rank)) : "memory");
}

// Each block sends words to the other. 1: they are sent before the other's barrier is there; 2: half of the bytes are expected; 3: the buffer is
// written again before it has been read.
KERNEL(exchange) {
  __shared__ alignas(16) int s[32];
  __shared__ u64 full, empty;
  int t = threadIdx.x, me = rank(), sum = 0;
  if (t == 0) { bar_init(&full, 1); bar_init(&empty, 32); fence_init(); }
  if (BUG == 1) __syncthreads(); else cluster_sync();
  for (int k = 0; k < 3; k++) {
    if (t == 0) expect(&full, BUG == 2 ? 64 : 128);
    if (k && BUG != 3) wait(&empty, (k - 1) & 1);
    st_async(&s[31 - t], x[32 * me + t] + k, &full, me ^ 1);
    wait(&full, k & 1);
    sum += s[t];
    arrive_at(&empty, me ^ 1);
  }
  y[32 * me + t] = sum;
  cluster_sync();
}
TWINS(exchange, __cluster_dims__(2))

// A halo is read out of the neighbour. 1: before it was written; 2: the neighbour may have ended; 3: of a block that the cluster does not have.
KERNEL(halo) {
  __shared__ int s[32];
  int t = threadIdx.x, me = rank(), v;
  s[t] = x[32 * me + t];
  if (BUG == 1) __syncthreads(); else cluster_sync();
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(peer(&s[31 - t], BUG == 3 ? me + 1 : me ^ 1)) : "memory");
  y[512 + 32 * me + t] = v;
  if (BUG != 2) cluster_sync();
}
TWINS(halo, __cluster_dims__(2))

// A copy from block to block. 1: no proxy fence; 2: the source is written again before it was read; 3: it completes on the barrier of the wrong block.
KERNEL(copied) {
  __shared__ alignas(128) int s[32], r[32];
  __shared__ u64 full;
  int t = threadIdx.x, me = rank();
  if (t == 0) { bar_init(&full, 1); fence_init(); expect(&full, 128); }
  s[t] = x[32 * me + t];
  if (BUG != 1) fence_async();
  cluster_sync();
  if (t == 0)
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(peer(r, me ^ 1)), "r"(smem(s)), "r"(peer(&full, BUG == 3 ? me : me ^ 1)) : "memory");
  __syncwarp();
  if (BUG == 2) s[t] = 0;
  wait(&full, 0);
  y[512 + 32 * me + t] = r[31 - t];
  cluster_sync();
}
TWINS(copied, __cluster_dims__(2))

// Sums of a cluster by red.async into the first block. 1: the sum's words were not cleared; 2: read without waiting; 3: the first block ends early.
KERNEL(sums) {
  __shared__ alignas(16) int s[32];
  __shared__ u64 full;
  int t = threadIdx.x, me = rank();
  if (t == 0) { bar_init(&full, 1); fence_init(); expect(&full, 256); }
  if (BUG != 1) s[t] = 0;
  cluster_sync();
  if (BUG != 3 || me)
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(peer(&s[t], 0)), "r"(x[32 * me + t]), "r"(peer(&full, 0)) : "memory");
  if (me == 0) {
    if (BUG != 2 && BUG != 3) wait(&full, 0);
    if (BUG != 3) y[512 + t] = s[t];
  }
  if (BUG == 2) cluster_sync();
}
TWINS(sums, __cluster_dims__(2))

// A barrier in the first block counts both. 1: for arrivals of one block only; 2: what is announced is not released to the cluster; 3: the other block's
// barrier is waited for.
KERNEL(counted) {
  __shared__ int s[64];
  __shared__ u64 done;
  int t = threadIdx.x, me = rank();
  if (t == 0) { bar_init(&done, BUG == 1 ? 32 : 64); fence_init(); }
  cluster_sync();
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(peer(&s[32 * me + t], 0)), "r"(x[32 * me + t]) : "memory");
  if (BUG == 2) asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer(&done, 0)) : "memory");
  else arrive_at(&done, 0);
  if (me == 0 || BUG == 3) {
    asm volatile("{\n.reg .pred p;\nL:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n@!p bra L;\n}" ::"r"(BUG == 3 ? peer(&done, 0) : smem(&done)) : "memory");
    if (me == 0) y[512 + t] = s[63 - t] + s[t];
  }
}
TWINS(counted, __cluster_dims__(2))
