/* Parse the fields of many protobuf messages into columns, as visualprof/reader/fields.py describes them. */
#include <stddef.h>
#include <stdint.h>

#include "api.h"
#include "wire.h"

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
