/* XXH3 of long inputs with AVX2, for machines that have it: the same sums in less time.

   The kernel itself is compiled for any machine of its kind; this one file is not, and is called only
   after the processor was asked. Where the compiler cannot do that, `hr_is_wide` says no. */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2")
#define WIDE __builtin_cpu_supports("avx2")
#else
#define WIDE 0
#endif

#include "arrow/vendored/xxhash/xxhash.h"

int hr_is_wide(void) { return WIDE; }

uint64_t hr_wide_sum(const void *bytes, size_t size) { return XXH3_64bits(bytes, size); }

void hr_wide_update(XXH3_state_t *state, const void *bytes, size_t size) { XXH3_64bits_update(state, bytes, size); }
