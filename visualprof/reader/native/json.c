/* Write columns as JSON. */
#include <stdint.h>
#include <string.h>

#include "api.h"

#define MAX_INTEGRAL 1e15 /* Python writes integral doubles below it without an exponent */

/* Writes a number and returns its end. */
static uint8_t *digits(uint8_t *to, int64_t number)
{
    uint8_t text[20], *from = text + sizeof text;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    if (number < 0) *to++ = '-';
    do *--from = (uint8_t)('0' + rest % 10);
    while (rest /= 10);
    while (from < text + sizeof text) *to++ = *from++;
    return to;
}

/* Writes integers as an array. Returns the length of the text. values: (n,). text: (22 n + 2,) written. */
API int64_t vp_json_integers(const int64_t *values, int64_t n, uint8_t *text)
{
    uint8_t *to = text;
    *to++ = '[';
    for (int64_t i = 0; i < n; i++) {
        if (i) *to++ = ',';
        to = digits(to, values[i]);
    }
    *to++ = ']';
    return to - text;
}

/* Writes doubles like integers, NaN as null. Returns -1 if one is not integral, or is -0 or large. */
API int64_t vp_json_doubles(const double *values, int64_t n, uint8_t *text)
{
    uint8_t *to = text;
    *to++ = '[';
    for (int64_t i = 0; i < n; i++) {
        const char *after = ".0";
        if (i) *to++ = ',';
        if (values[i] != values[i]) after = "null";
        else if (!(values[i] > -MAX_INTEGRAL && values[i] < MAX_INTEGRAL)) return -1;
        else if (values[i] != (double)(int64_t)values[i]) return -1;
        else if (values[i] == 0 && 1 / values[i] < 0) return -1;
        else to = digits(to, (int64_t)values[i]);
        while (*after) *to++ = (uint8_t)*after++;
    }
    *to++ = ']';
    return to - text;
}

/* Like `vp_json_integers`, for addresses: writes them as strings, `"0x7f00"`, and the largest address as null. */
API int64_t vp_json_addresses(const int64_t *values, int64_t n, uint8_t *text)
{
    uint8_t *to = text;
    *to++ = '[';
    for (int64_t i = 0; i < n; i++) {
        uint64_t address = (uint64_t)values[i];
        const char *around = address == UINT64_MAX ? "null" : "\"0x";
        int shift = 60;
        if (i) *to++ = ',';
        while (*around) *to++ = (uint8_t)*around++;
        if (address == UINT64_MAX) continue;
        while (shift && !(address >> shift)) shift -= 4;
        for (; shift >= 0; shift -= 4) *to++ = (uint8_t)"0123456789abcdef"[address >> shift & 15];
        *to++ = '"';
    }
    *to++ = ']';
    return to - text;
}

/*
 * Writes values that are JSON already as an array. Returns the length of the text.
 *
 * index: (n,) number of each value.
 * values: texts of all values, concatenated.
 * end: end of each value in `values`.
 * text: written.
 */
API int64_t vp_json_values(const int64_t *index, int64_t n, const uint8_t *values, const int64_t *end, uint8_t *text)
{
    uint8_t *to = text;
    *to++ = '[';
    for (int64_t i = 0; i < n; i++) {
        int64_t start = index[i] ? end[index[i] - 1] : 0, size = end[index[i]] - start;
        if (i) *to++ = ',';
        memcpy(to, values + start, (size_t)size);
        to += size;
    }
    *to++ = ']';
    return to - text;
}
