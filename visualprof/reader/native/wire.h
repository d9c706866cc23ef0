/* The wire format of protobuf messages: https://protobuf.dev/programming-guides/encoding. */
#ifndef VP_WIRE_H
#define VP_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* Reads a number of at most ten bytes. Returns its end, or NULL if it is incomplete. */
static inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; p < end && shift < 70; shift += 7) {
        *value |= (uint64_t)(*p & 127) << shift;
        if (*p++ < 128) return p;
    }
    return NULL;
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
    size_t width = kind == 1 ? 8 : kind == 5 ? 4 : 0;
    if (!width || width > (size_t)(end - p)) return NULL;
    number = 0;
    for (size_t i = 0; i < width; i++) number |= (uint64_t)p[i] << 8 * i;
    *value = (int64_t)number;
    return p + width;
}

#endif
