/* Split files of run data into records, as visualprof/reader/run_data/framing.py describes them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "texts.h"

#define POLYNOMIAL UINT32_C(0x82F63B78)
enum { SLICES = 8, RECORD_START = 0x0A };

static uint32_t crc_table[SLICES][256];

/* Fills the tables: crc_table[k][b] is the CRC of byte b followed by k zero bytes. Calling it twice is harmless. */
static void fill_tables(void)
{
    if (crc_table[SLICES - 1][255]) return;
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        crc_table[0][b] = crc;
    }
    for (int k = 1; k < SLICES; k++)
        for (int b = 0; b < 256; b++) crc_table[k][b] = crc_table[k - 1][b] >> 8 ^ crc_table[0][crc_table[k - 1][b] & 255];
}

static uint64_t number(const uint8_t *p, int width)
{
    uint64_t value = 0;
    for (int i = 0; i < width; i++) value |= (uint64_t)p[i] << 8 * i;
    return value;
}

/* Returns the masked CRC-32C of n bytes. */
static uint32_t masked_crc(const uint8_t *p, uint64_t n)
{
    uint32_t crc = ~UINT32_C(0);
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t low = crc ^ (uint32_t)number(p, 4), high = (uint32_t)number(p + 4, 4);
        crc = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^ crc_table[5][low >> 16 & 255] ^
              crc_table[4][low >> 24] ^ crc_table[3][high & 255] ^ crc_table[2][high >> 8 & 255] ^
              crc_table[1][high >> 16 & 255] ^ crc_table[0][high >> 24];
    }
    for (; n; p++, n--) crc = crc_table[0][(crc ^ *p) & 255] ^ crc >> 8;
    crc = ~crc;
    return (crc >> 15 | crc << 17) + UINT32_C(0xA282EAD8);
}

/* Whether a VisualDL record of `size` bytes may start at p, of which `left` bytes are known. */
static int starts_record(const uint8_t *p, int64_t left, uint64_t size)
{
    if (!size || (left > 0 && p[0] != RECORD_START)) return 0;
    uint64_t inner = 0;
    for (int i = 1; i < 11 && i < left; i++) {
        uint64_t part = p[i] & 127;
        if (i == 10 && part > 1) return 0; /* more than 64 bits */
        inner |= part << 7 * (i - 1);
        if (p[i] < 128) return inner <= size && inner + (uint64_t)i + 1 <= size;
    }
    return left < 11; /* the number ends in bytes that are not known yet */
}

/*
 * Finds the records at the start of data[0:n].
 *
 * plain: the records have no checksums.
 * start, size, valid: data of each record, and whether its checksum is right; written, n / 12 + 1 entries, or n / 8 + 1.
 * end: written: offset after the records, whether the bytes there cannot start a record, bytes of the incomplete record.
 * Returns the number of records.
 */
API int64_t vp_run_frames(const uint8_t *data, int64_t n, int64_t plain, int64_t max_size, int64_t *start,
                          int64_t *size, uint8_t *valid, int64_t *end)
{
    int64_t header = plain ? 8 : 12, trailer = plain ? 0 : 4, offset = 0, count = 0;
    fill_tables();
    end[1] = end[2] = 0;
    while (n - offset >= header) {
        const uint8_t *p = data + offset;
        uint64_t length = number(p, 8);
        int good = length <= (uint64_t)max_size && (plain ? starts_record(p + 8, n - offset - 8, length)
                                                          : (uint32_t)number(p + 8, 4) == masked_crc(p, 8));
        if (!good) {
            end[1] = 1;
            break;
        }
        int64_t whole = header + (int64_t)length + trailer;
        if (whole > n - offset) {
            end[2] = whole;
            break;
        }
        start[count] = offset + header;
        size[count] = (int64_t)length;
        valid[count++] = plain || (uint32_t)number(p + header + length, 4) == masked_crc(p + header, length);
        offset += whole;
    }
    end[0] = offset;
    return count;
}

/*
 * Numbers the distinct texts among data[start[i]:start[i] + size[i]].
 *
 * ids, first: number of each text, and a row of each number; both (n,), written.
 * Returns the count of distinct texts, -1 if memory is exhausted.
 */
API int64_t vp_run_texts(const uint8_t *data, const int64_t *start, const int64_t *size, int64_t n, int32_t *ids,
                         int64_t *first)
{
    uint64_t slots = 64;
    while (slots < 2 * (uint64_t)n) slots *= 2;
    int32_t *table = calloc(slots, sizeof *table);
    int64_t count = 0;
    if (!table) return -1;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = text_hash(data + start[i], size[i]) & (slots - 1);
        for (; table[at]; at = (at + 1) & (slots - 1)) {
            int64_t row = first[table[at] - 1];
            if (size[row] == size[i] && !memcmp(data + start[row], data + start[i], (size_t)size[i])) break;
        }
        if (!table[at]) {
            first[count++] = i;
            table[at] = (int32_t)count;
        }
        ids[i] = table[at] - 1;
    }
    free(table);
    return count;
}
