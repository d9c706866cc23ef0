/* Memory events: the next event at an address. */
#include <stdint.h>

#include "api.h"

/*
 * Finds for each memory event the next one at its address on its device, -1 for none. The largest address means unknown.
 *
 * addr, device: (n,) in order of time. last: work space, (2^bits,) filled with -1, larger than n. after: (n,) output.
 */
API void vp_next_of_address(const int64_t *addr, const int32_t *device, int64_t n, int32_t *last, int32_t bits,
                            int32_t *after)
{
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (int64_t i = n - 1; i >= 0; i--) { /* from the end, so that the table holds the next event at each address */
        uint64_t key = (uint64_t)addr[i] ^ (uint64_t)(uint32_t)device[i] << 48;
        uint64_t at = key * UINT64_C(0x9E3779B97F4A7C15) >> (64 - bits);
        after[i] = -1;
        if (addr[i] == -1) continue;
        while (last[at] >= 0 && (addr[last[at]] != addr[i] || device[last[at]] != device[i])) at = (at + 1) & mask;
        after[i] = last[at];
        last[at] = (int32_t)i;
    }
}
