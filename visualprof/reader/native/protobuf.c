/* Parse the fields of many protobuf messages into columns, as visualprof/reader/fields.py describes them. */
#include <stddef.h>
#include <stdint.h>

#include "api.h"

/* Reads a number of at most ten bytes. Returns its end, or NULL if it is incomplete. */
static const uint8_t *varint(const uint8_t *p, const uint8_t *end, uint64_t *value)
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
static const uint8_t *field(const uint8_t *data, const uint8_t *p, const uint8_t *end, uint64_t *tag, int64_t *value,
                            int64_t *size)
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

/* Counts the fields of each message data[start[i]:stop[i]]. counts: (n,) written, -1 for a damaged message. */
API void vp_field_counts(const uint8_t *data, const int64_t *start, const int64_t *stop, int64_t n, int64_t *counts)
{
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *p = data + start[i], *end = data + stop[i];
        uint64_t tag;
        int64_t value, size;
        for (counts[i] = 0; p && p < end; counts[i]++) p = field(data, p, end, &tag, &value, &size);
        if (!p) counts[i] = -1;
    }
}

/*
 * Writes the fields of all undamaged messages, in order.
 *
 * counts: (n,) from `vp_field_counts`.
 * message, number: message and number of each field, written.
 * value, size: for each field its number and -1, or the offset and size of its bytes, written.
 */
API void vp_fields(const uint8_t *data, const int64_t *start, const int64_t *stop, int64_t n, const int64_t *counts,
                   int32_t *message, int32_t *number, int64_t *value, int64_t *size)
{
    int64_t row = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *p = data + start[i], *end = data + stop[i];
        for (int64_t left = counts[i]; left > 0; left--, row++) {
            uint64_t tag;
            p = field(data, p, end, &tag, value + row, size + row);
            message[row] = (int32_t)i;
            number[row] = (int32_t)(tag >> 3 & 0x1fffffff);
        }
    }
}
