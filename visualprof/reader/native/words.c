/* Numbered distinct texts. */
#include "scan.h"
#include <stdlib.h>

#define NO_KEY (~(uint64_t)0) /* equals no key */
static const uint8_t EMPTY[16];
enum { BLOCK_BYTES = 1 << 16 };

/* Ensures space for one more item. Returns 0 if memory is exhausted. */
int ensure_capacity(void **array, size_t *capacity, size_t count, size_t size)
{
    if (LIKELY(count < *capacity)) return 1;
    size_t larger = *capacity ? *capacity * 2 : 256;
    void *moved = realloc(*array, larger * size);
    if (!moved) return 0;
    *array = moved;
    *capacity = larger;
    return 1;
}

int words_open(Words *words)
{
    memset(words, 0, sizeof *words);
    words->capacity = 256;
    words->mask = 1023;
    words->words = calloc(words->capacity, sizeof(Word));
    words->slots = calloc((size_t)words->mask + 1, sizeof(uint32_t));
    if (!words->words || !words->slots) return 0;
    words->words[words->count++] = (Word){.text = EMPTY, .kind_key = NO_KEY, .thread_key = NO_KEY};
    return 1;
}

void words_close(Words *words)
{
    while (words->blocks) {
        Block *before = words->blocks->before;
        free(words->blocks);
        words->blocks = before;
    }
    free(words->words);
    free(words->slots);
}

/* Hashes a text. The last one to seven bytes are read together with the padding after the text. */
static uint32_t hash_text(Text p, uint32_t n)
{
    uint64_t h = UINT64_C(0x9E3779B97F4A7C15) ^ n;
    for (; n > 8; p += 8, n -= 8) {
        h = (h ^ eight_bytes(p)) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    uint64_t rest = n ? eight_bytes(p) & (~(uint64_t)0 >> (64 - 8 * n)) : 0;
    h = (h ^ rest) * UINT64_C(0xc4ceb9fe1a85ec53);
    return (uint32_t)(h ^ (h >> 29));
}

/* Copies a text and appends 16 zero bytes. Returns NULL if memory is exhausted. */
static Text copy_text(Words *words, Text text, uint32_t size)
{
    size_t needed = (size_t)size + 16;
    if (words->unused_bytes < needed) {
        size_t bytes = needed > BLOCK_BYTES ? needed : BLOCK_BYTES;
        Block *block = calloc(1, sizeof(Block) + bytes);
        if (!block) return NULL;
        block->before = words->blocks;
        words->blocks = block;
        words->unused = (uint8_t *)(block + 1);
        words->unused_bytes = bytes;
    }
    uint8_t *copy = words->unused;
    memcpy(copy, text, size);
    words->unused += needed;
    words->unused_bytes -= needed;
    return copy;
}

static int double_slots(Words *words)
{
    uint32_t mask = words->mask * 2 + 1;
    uint32_t *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (!slots) return 0;
    for (uint32_t k = 1; k < words->count; k++) {
        uint32_t i = words->words[k].hash & mask;
        while (slots[i]) i = (i + 1) & mask;
        slots[i] = k;
    }
    free(words->slots);
    words->slots = slots;
    words->mask = mask;
    return 1;
}

/*
 * Returns the number of a text; a new text gets a new number. Returns -1 if memory is exhausted.
 *
 * copied: copy the text; otherwise it must outlive the words. In both cases up to 15 bytes after the text are read.
 */
int32_t find_word(Words *words, Text text, uint32_t size, int bare, int copied)
{
    uint32_t hash = hash_text(text, size), i = hash & words->mask;
    for (; words->slots[i]; i = (i + 1) & words->mask) {
        Word *word = words->words + words->slots[i];
        if (word->hash == hash && word->size == size && same(text, word->text, size)) return (int32_t)words->slots[i];
    }
    if (words->count == words->capacity) {
        Word *larger = words->capacity > INT32_MAX / 2 ? NULL : realloc(words->words, sizeof(Word) * 2 * words->capacity);
        if (!larger) return -1;
        words->words = larger;
        words->capacity *= 2;
    }
    if (copied && !(text = copy_text(words, text, size))) return -1;
    words->words[words->count] = (Word){text, NO_KEY, NO_KEY, size, hash, 0, 0, (uint8_t)bare, 0};
    words->slots[i] = words->count++;
    if (words->count > words->mask / 2 && !double_slots(words)) return -1;
    return (int32_t)words->count - 1;
}
