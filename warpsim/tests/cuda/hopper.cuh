// What kernels for Hopper are written with, and TWINS, which makes a kernel without a bug and three with one of them each.
#include <cstdint>
#include <cuda.h>
#define ARGS int *x, int *y, void *, const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out, const __grid_constant__ CUtensorMap half
#define TWINS(name, attributes) \
  extern "C" __global__ void attributes name##_0(ARGS) { name<0>(&in, &out, &half, x, y); } \
  extern "C" __global__ void attributes name##_1(ARGS) { name<1>(&in, &out, &half, x, y); } \
  extern "C" __global__ void attributes name##_2(ARGS) { name<2>(&in, &out, &half, x, y); } \
  extern "C" __global__ void attributes name##_3(ARGS) { name<3>(&in, &out, &half, x, y); }
#define KERNEL(name) template <int BUG> __device__ __forceinline__ void name(const CUtensorMap *in, const CUtensorMap *out, const CUtensorMap *half, const int *x, int *y)
#define DEV static __device__ __forceinline__
using u32 = uint32_t;
using u64 = uint64_t;

DEV u32 smem(const void *p) { return (u32)__cvta_generic_to_shared(p); }
DEV void bar_init(u64 *b, u32 n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(b)), "r"(n) : "memory"); }
DEV void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEV void expect(u64 *b, u32 n) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(b)), "r"(n) : "memory"); }
DEV void arrive(u64 *b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem(b)) : "memory"); }
DEV u32 peer(const void *p, u32 rank) {
  u32 a;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(smem(p)), "r"(rank));
  return a;
}
DEV void arrive_at(u64 *b, u32 rank) { asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer(b, rank)) : "memory"); }
DEV void wait(u64 *b, u32 parity) {
  asm volatile("{\n.reg .pred p;\nLAB:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra LAB;\nDONE:\n}" ::"r"(smem(b)), "r"(parity) : "memory");
}
DEV void load(void *to, const CUtensorMap *m, int c, int r, u64 *b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(smem(to)), "l"(m), "r"(c), "r"(r), "r"(smem(b)) : "memory");
}
DEV void load_all(void *to, const CUtensorMap *m, int c, int r, u64 *b, uint16_t mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(smem(to)), "l"(m), "r"(c), "r"(r), "r"(smem(b)), "h"(mask) : "memory");
}
DEV void store(const CUtensorMap *m, int c, int r, const void *from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(m), "r"(c), "r"(r), "r"(smem(from)) : "memory");
}
DEV void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> DEV void wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
template <int N> DEV void wait_all() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
DEV u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
DEV void cluster_sync() { asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEV void named(int id, int n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
DEV void named_arrive(int id, int n) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory"); }

// Tiles of 64 x 64 halves, K-major, swizzled by 128 bytes.
DEV u64 desc(const void *p, int stride = 64) { return (u64)(smem(p) >> 4 & 0x3fff) | 1ull << 16 | (u64)stride << 32 | 1ull << 62; }
DEV void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DEV void wg_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
DEV void mma_16(float (&d)[8], u64 a, u64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]) : "l"(a), "l"(b));
}
DEV void mma_16(float (&d)[8], const u32 (&a)[4], u64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, 1, 1, 1, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
