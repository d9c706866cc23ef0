/* Strict reading of JSON values. Values that Python's decoder might read differently are rejected. */
#include "scan.h"
#include <math.h>
#include <stdlib.h>

/* For larger times with an exponent, Python's decoder does not keep all digits. */
#define MAX_EXACT_NS ((uint64_t)1000 << 41)
enum { MAX_DEPTH = 64 }; /* deeper values are rejected: Python's decoder also has a limit */

static unsigned lowest_bit(uint32_t x)
{
#if defined(_MSC_VER)
    unsigned long i;
    _BitScanForward(&i, x);
    return (unsigned)i;
#else
    return (unsigned)__builtin_ctz(x);
#endif
}

/* Returns the next quote, backslash or control character. */
static inline Text special_character(Text p, Text end)
{
#ifdef VP_SSE2
    for (; p < end; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)p);
        __m128i quotes = _mm_cmpeq_epi8(x, _mm_set1_epi8('"')), escapes = _mm_cmpeq_epi8(x, _mm_set1_epi8('\\'));
        __m128i controls = _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1f)), x);
        uint32_t found = (uint32_t)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quotes, escapes), controls));
        if (found) return p + lowest_bit(found);
    }
#else
    const uint64_t ones = UINT64_C(0x0101010101010101);
    for (; p < end; p += 8) {
        uint64_t x = eight_bytes(p), q = x ^ (ones * '"'), b = x ^ (ones * '\\');
        if ((((q - ones) & ~q) | ((b - ones) & ~b) | ((x - ones * 0x20) & ~x)) & (ones << 7)) break;
    }
    while (p < end && *p != '"' && *p != '\\' && *p >= 0x20) p++;
#endif
    return p;
}

/* Returns the value of four hexadecimal digits, -1 for other characters. */
static int hexadecimal(Text p)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int letter = (p[i] | 32) - 'a';
        if (!is_digit(p[i]) && (letter < 0 || letter > 5)) return -1;
        value = value * 16 + (is_digit(p[i]) ? p[i] - '0' : letter + 10);
    }
    return value;
}

/* Returns the end of the escape sequence at p. An unpaired surrogate is rejected. */
static Text escape_end(Reader *r, Text p)
{
    if (p[1] != 'u') return p[1] && strchr("\"\\/bfnrt", p[1]) ? p + 2 : fault(r, p + 1);
    if (r->end - p < 6) return fault(r, r->end);
    int code = hexadecimal(p + 2);
    if (code < 0 || (code >= 0xDC00 && code < 0xE000)) return fault(r, p);
    if (code < 0xD800 || code >= 0xE000) return p + 6;
    if (r->end - p < 12) return fault(r, r->end);
    if (p[6] != '\\' || p[7] != 'u' || (code = hexadecimal(p + 8)) < 0xDC00 || code >= 0xE000) return fault(r, p);
    return p + 12;
}

/* Returns the end of the string whose opening quote is at p. */
Text string_end(Reader *r, Text p)
{
    for (p++;;) {
        p = special_character(p, r->end);
        if (p >= r->end) return fault(r, r->end);
        if (*p == '"') return p + 1;
        if (*p != '\\') return fault(r, p);
        if (!(p = escape_end(r, p))) return NULL;
    }
}

static Text digits_end(Text p)
{
    while (is_digit(*p)) p++;
    return p;
}

static Text number_end(Reader *r, Text p)
{
    if (*p == '-') p++;
    if (!is_digit(*p)) return fault(r, p);
    p = *p == '0' ? p + 1 : digits_end(p);
    if (*p == '.') {
        if (!is_digit(*++p)) return fault(r, p);
        p = digits_end(p);
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '+' || *p == '-') p++;
        if (!is_digit(*p)) return fault(r, p);
        p = digits_end(p);
    }
    return is_delimiter(*p) ? p : fault(r, p);
}

static Text members_end(Reader *r, Text p, int depth, uint8_t close)
{
    p = blanks_end(p + 1);
    if (*p == close) return p + 1;
    for (;;) {
        if (close == '}') {
            if (*p != '"') return fault(r, p);
            if (!(p = string_end(r, p))) return NULL;
            p = blanks_end(p);
            if (*p != ':') return fault(r, p);
            p = blanks_end(p + 1);
        }
        if (!(p = value_end(r, p, depth + 1))) return NULL;
        p = blanks_end(p);
        if (*p == close) return p + 1;
        if (*p != ',') return fault(r, p);
        p = blanks_end(p + 1);
    }
}

/* Returns the end of the JSON value at p. */
Text value_end(Reader *r, Text p, int depth)
{
    switch (*p) {
    case '"': return string_end(r, p);
    case '[': return depth < MAX_DEPTH ? members_end(r, p, depth, ']') : fault(r, p);
    case '{': return depth < MAX_DEPTH ? members_end(r, p, depth, '}') : fault(r, p);
    case 't': return strncmp((const char *)p, "true", 4) ? fault(r, p) : p + 4;
    case 'n': return strncmp((const char *)p, "null", 4) ? fault(r, p) : p + 4;
    case 'f': return strncmp((const char *)p, "false", 5) ? fault(r, p) : p + 5;
    default: return number_end(r, p);
    }
}

/* Returns whether the next eight bytes are digits, and sets `out` to their number. */
static inline int eight_digits(Text p, uint64_t *out)
{
    uint64_t x = eight_bytes(p), high = UINT64_C(0xF0F0F0F0F0F0F0F0), zeros = UINT64_C(0x3030303030303030);
    if (((x & high) ^ zeros) | (((x + UINT64_C(0x0606060606060606)) & high) ^ zeros)) return 0;
    x -= zeros;
    x = x * 10 + (x >> 8);
    uint64_t tens = (x & UINT64_C(0xFF000000FF)) * UINT64_C(0x000F424000000064);
    *out = (tens + ((x >> 16) & UINT64_C(0xFF000000FF)) * UINT64_C(0x0000271000000001)) >> 32 & 0xFFFFFFFF;
    return 1;
}

/* Reads a natural number of up to 19 digits. */
static inline Text natural_at(Reader *r, Text p, uint64_t *value)
{
    Text start = p;
    uint64_t v = 0, part;
    if (*p == '0') {
        *value = 0;
        return is_digit(p[1]) ? fault(r, p) : p + 1;
    }
    if (eight_digits(p, &part)) {
        v = part;
        p += 8;
        if (eight_digits(p, &part)) {
            v = v * 100000000 + part;
            p += 8;
        }
    }
    for (; is_digit(*p); p++) v = v * 10 + (uint64_t)(*p - '0');
    *value = v;
    return p == start || p - start > 19 ? fault(r, p) : p;
}

static uint64_t power_of_ten(int exponent)
{
    uint64_t value = 1;
    while (exponent-- > 0) value *= 10;
    return value;
}

/* Reads a time with an exponent: first all digits, then the exponent. */
static Text scientific_at(Reader *r, Text p, int64_t *ns)
{
    Text end = number_end(r, p);
    int negative = *p == '-', shift = 3, fraction = 0, sign = 1, exponent = 0;
    uint64_t v = 0;
    if (!end) return NULL;
    for (p += negative; *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            fraction = 1;
            continue;
        }
        if (v > UINT64_MAX / 10 - 1) return fault(r, p);
        v = v * 10 + (uint64_t)(*p - '0');
        shift -= fraction;
    }
    if (*++p == '-') sign = -1;
    if (!is_digit(*p)) p++;
    for (; p < end; p++) {
        if (exponent > 99) return fault(r, p);
        exponent = exponent * 10 + (*p - '0');
    }
    shift += sign * exponent;
    if (shift < 0) v = shift < -19 ? 0 : (v / power_of_ten(-shift)) + (v % power_of_ten(-shift) >= power_of_ten(-shift) / 2);
    else if (v && (shift > 18 || v > MAX_NS / power_of_ten(shift))) return fault(r, p);
    else v *= v ? power_of_ten(shift) : 1;
    if (v > MAX_EXACT_NS) return fault(r, p);
    *ns = negative ? -(int64_t)v : (int64_t)v;
    return end;
}

/* Reads decimal microseconds as ns, exactly. Digits after the third decimal round to the nearest, half away from zero. */
static inline Text decimal_time_at(Reader *r, Text p, int64_t *ns)
{
    int negative = *p == '-';
    uint64_t v;
    if (!(p = natural_at(r, p + negative, &v))) return NULL;
    if (v >= MAX_NS / 1000) return fault(r, p); /* implausibly large: Python clips it */
    v *= 1000;
    if (*p == '.') {
        if (!is_digit(*++p)) return fault(r, p);
        v += (uint64_t)(*p++ - '0') * 100;
        if (is_digit(*p)) v += (uint64_t)(*p++ - '0') * 10;
        if (is_digit(*p)) v += (uint64_t)(*p++ - '0'); /* always the third digit: the line above has read the second one */
        if (is_digit(*p)) {
            v += *p >= '5';
            p = digits_end(p);
        }
    }
    *ns = negative ? -(int64_t)v : (int64_t)v;
    return p;
}

/* Reads a time, also one that is a string, as torch_npu writes it: `"1736408883688177.930"`. */
Text time_at(Reader *r, Text p, int64_t *ns)
{
    Text start = p;
    int quoted = *p == '"';
    int64_t value;
    if (!(p = decimal_time_at(r, p + quoted, &value))) return NULL;
    if (quoted ? *p == '"' : LIKELY(is_delimiter(*p))) {
        *ns = value;
        return p + quoted;
    }
    return !quoted && (*p == 'e' || *p == 'E') ? scientific_at(r, start, ns) : fault(r, p);
}

/* Reads a time with its unit, `"11.317 us"`, as ns. Python reads other units. */
Text duration_at(Reader *r, Text p, int64_t *ns)
{
    if (*p != '"') return fault(r, p);
    if (!(p = decimal_time_at(r, p + 1, ns))) return NULL;
    return memcmp(p, " us\"", 4) ? fault(r, p) : p + 4;
}

/* Reads an integer, also as a string. Unsigned 64-bit numbers that represent negative numbers are converted back. */
Text integer_at(Reader *r, Text p, int64_t *value)
{
    Text start = p;
    int quoted = *p == '"', negative = p[quoted] == '-';
    uint64_t v;
    p += quoted + negative;
    Text end = natural_at(r, p, &v);
    if (!end && !quoted) { /* 20 digits */
        end = digits_end(p);
        if (end - p != 20 || *p != '1' || negative) return NULL;
        if (!natural_at(r, p + 1, &v) || v > UINT64_C(8446744073709551615)) return fault(r, start);
        v += UINT64_C(10000000000000000000);
    }
    if (!end || (quoted ? *end != '"' : !is_delimiter(*end))) return fault(r, start);
    if ((negative || quoted) && v > (uint64_t)INT64_MAX) return fault(r, start);
    *value = negative ? -(int64_t)v : (int64_t)v;
    return end + quoted;
}

/*
 * Reads a number as the nearest double. Up to 15 digits and a power of ten below 10^22 are exact doubles, so their
 * quotient is correctly rounded.
 */
Text float_at(Reader *r, Text p, double *value)
{
    Text end = number_end(r, p), start = p;
    if (!end) return NULL;
    int negative = *p == '-', scale = 0, fraction = 0;
    uint64_t v = 0;
    for (p += negative; p < end && p - start < 18 && v < UINT64_C(100000000000000); p++) {
        if (*p == '.') fraction = 1;
        else if (!is_digit(*p)) break;
        else {
            v = v * 10 + (uint64_t)(*p - '0');
            scale += fraction;
        }
    }
    if (p == end) *value = (double)v / (double)power_of_ten(scale) * (negative ? -1 : 1);
    else {
        char *stop;
        *value = strtod((const char *)start, &stop); /* stops early in a locale whose decimal separator is a comma */
        if ((Text)stop != end || !isfinite(*value)) return fault(r, start);
    }
    return end;
}

/* Returns whether the bytes are valid UTF-8: shortest forms, no surrogates, up to U+10FFFF. */
int valid_utf8(Text p, uint32_t size)
{
    Text end = p + size;
    while (p < end) {
        if (*p < 0x80) {
            p++;
            continue;
        }
        int following = *p >= 0xF0 ? 3 : *p >= 0xE0 ? 2 : 1;
        uint8_t low = *p == 0xE0 ? 0xA0 : *p == 0xF0 ? 0x90 : 0x80, high = *p == 0xED ? 0x9F : *p == 0xF4 ? 0x8F : 0xBF;
        if (*p < 0xC2 || *p > 0xF4 || end - p <= following || p[1] < low || p[1] > high) return 0;
        for (int i = 2; i <= following; i++)
            if ((p[i] & 0xC0) != 0x80) return 0;
        p += following + 1;
    }
    return 1;
}
