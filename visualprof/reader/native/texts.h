/* A hash of short texts. */
#ifndef VP_TEXTS_H
#define VP_TEXTS_H

#include <stdint.h>

static inline uint64_t text_hash(const uint8_t *p, int64_t n)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (int64_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(0x100000001B3);
    return h ^ h >> 29;
}

#endif
