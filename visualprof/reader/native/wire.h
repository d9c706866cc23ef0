/* The wire format of protobuf messages: https://protobuf.dev/programming-guides/encoding. */
#ifndef VP_WIRE_H
#define VP_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* Reads a number of at most ten bytes. Returns its end, or NULL if it is incomplete. */
static inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    if (p < end && *p < 128) { /* almost all numbers */
        *value = *p;
        return p + 1;
    }
    *value = 0;
    for (int shift = 0; p < end && shift < 70; shift += 7) {
        *value |= (uint64_t)(*p & 127) << shift;
        if (*p++ < 128) return p;
    }
    return NULL;
}

static inline uint32_t little_endian(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/*
 * Reads one field. Returns its end, or NULL if the bytes are not a field.
 *
 * value, size: set to the number and -1, or to the offset and size of the bytes.
 */
static inline const uint8_t *field(const uint8_t *data, const uint8_t *p, const uint8_t *end, uint64_t *tag,
                                   int64_t *value, int64_t *size)
{
    uint64_t number;
    p = varint(p, end, tag);
    if (!p) return NULL;
    int kind = (int)(*tag & 7);
    *size = -1;
    if (kind == 0 || kind == 2) {
        p = varint(p, end, &number);
        if (!p) return NULL;
        *value = (int64_t)number;
        if (kind == 0) return p;
        if (number > (uint64_t)(end - p)) return NULL;
        *size = *value;
        *value = p - data;
        return p + *size;
    }
    if (kind == 1 && end - p >= 8) {
        *value = (int64_t)(little_endian(p) | (uint64_t)little_endian(p + 4) << 32);
        return p + 8;
    }
    if (kind != 5 || end - p < 4) return NULL;
    *value = little_endian(p);
    return p + 4;
}

#endif
