/*
 * Chrome trace events, JSON text to columns in one pass without an object of any of them.
 *
 * All bytes between two scalar values are one token, read once and known again by a comparison: equal bytes behind
 * equal ones mean the same. A value of few distinct texts is compared with the one that came next last time.
 */
#include "scan.h"
#include <math.h>

/* May the value be a name or an identifier: a text, a number that is not absurd, or null? */
static int is_label(Text p, Text end)
{
    if (*p == '"') return 1;
    return (*p == '-' || is_digit(*p)) && end - p <= 18 && !memchr(p, 'e', (size_t)(end - p)) && !memchr(p, 'E', (size_t)(end - p));
}

/* Reads a value and gives its number. any: of every type; else labels, and null is NONE. */
static Text new_word(Reader *r, Text p, int any, int32_t *id)
{
    Text end = value_end(r, p, 0);
    if (!end) return NULL;
    if (end > r->end) return fault(r, r->end);
    if (!any && *p == 'n') {
        *id = NONE;
        return end;
    }
    uint32_t known = r->words.count;
    if (end - p > INT32_MAX || (!any && !is_label(p, end))) return fault(r, p);
    *id = word_of(&r->words, p, (uint32_t)(end - p), *p != '"' && *p != '[' && *p != '{', 1);
    if (*id < 0) {
        r->short_of_memory = 1;
        return fault(r, p);
    }
    Word *word = r->words.words + *id;
    if (r->words.count > known) word->broken = !valid_utf8(p, word->size);
    return word->broken ? fault(r, p) : end;
}

/* As `new_word`, mostly by comparison with what followed the value before it the last time. */
static inline Text word_at(Reader *r, Habit *habit, Text p, int any, int32_t *id)
{
    int32_t *guess = habit->guess + habit->history % HABITS;
    const Word *word = r->words.words + *guess;
    if (LIKELY(word->size && same(p, word->text, word->size) && (!word->bare || delimits(p[word->size])))) {
        p += word->size;
    } else {
        if (!(p = new_word(r, p, any, id))) return NULL;
        *guess = *id;
    }
    *id = *guess;
    habit->history = (habit->history << 3) ^ ((uint32_t)*id * 0x9E37u);
    return p;
}

/* What events of a kind may have, from its phase and category. */
static Rights rights_of(const Reader *r, const Word *ph, const Word *cat)
{
    Rights rights = {~(uint64_t)0, 0, 0};
    char phase = ph->size > 2 ? (char)ph->text[1] : 0;
    uint32_t size = cat->size > 2 ? cat->size - 2 : 0;
    for (uint32_t i = 0; i < r->cat_count; i++)
        if (r->cats[i].size == size && !memcmp(r->cats[i].name, cat->text + 1, size)) rights.fields = r->cats[i].mask;
    if (ph->size == 3 && strchr("stf", phase)) rights.fields = 0;
    rights.with_id = phase && strchr("stfbneSTF", phase);
    rights.counter = phase == 'C';
    return rights;
}

/* The number of the event's (ph, cat, name); -1 where memory is short. */
static int32_t kind_of(Reader *r, const Event *e)
{
    Word *name = r->words.words + e->name;
    uint64_t key = (uint64_t)(uint32_t)e->ph << 32 | (uint32_t)e->cat;
    if (LIKELY(name->kind_key == key)) return name->kind;
    uint8_t triple[12 + 16] = {0};
    uint32_t known = r->kinds.count;
    memcpy(triple, &e->ph, 12);
    int32_t kind = word_of(&r->kinds, triple, 12, 0, 1);
    if (kind < 0 || !grown((void **)&r->rights, &r->rights_capacity, (size_t)kind, sizeof *r->rights)) return -1;
    if (r->kinds.count > known) r->rights[kind] = rights_of(r, r->words.words + e->ph, r->words.words + e->cat);
    name->kind_key = key;
    return name->kind = kind;
}

/* The number of the event's (pid, tid); -1 where memory is short. */
static int32_t place_of(Reader *r, const Event *e)
{
    Word *tid = r->words.words + e->tid;
    if (LIKELY(tid->place_key == (uint32_t)e->pid)) return tid->place;
    uint8_t pair[8 + 16] = {0};
    memcpy(pair, &e->pid, 8);
    int32_t place = word_of(&r->places, pair, 8, 0, 1);
    if (place < 0) return -1;
    tid->place_key = (uint32_t)e->pid;
    return tid->place = place;
}

/* A value of a column, of the member that its type says. */
typedef union { int64_t whole; double real; int32_t word; } Value;

static inline int push(Reader *r, Column *column, Value value)
{
    if (column->count == column->capacity) {
        size_t capacity = column->capacity;
        if (!grown((void **)&column->rows, &capacity, column->count, sizeof *column->rows) ||
            !grown(&column->values, &column->capacity, column->count, 8)) {
            r->short_of_memory = 1;
            return 0;
        }
    }
    column->rows[column->count] = (uint32_t)r->rows;
    if (column->type == TEXT) ((int32_t *)column->values)[column->count] = value.word;
    else if (column->type == FLOAT) ((double *)column->values)[column->count] = value.real;
    else ((int64_t *)column->values)[column->count] = value.whole;
    column->count++;
    return 1;
}

/* Takes arguments of the event out of the columns again. */
static void drop(Reader *r, uint64_t fields)
{
    for (uint32_t i = 0; fields; i++, fields >>= 1) r->columns[i].count -= fields & 1;
}

/* One argument of the event; that of an equal key before it is replaced. */
static inline Text argument_at(Reader *r, Event *e, int32_t field, Text p)
{
    Column *column = r->columns + field;
    uint64_t bit = (uint64_t)1 << field;
    Value value;
    if (column->type == TEXT) {
        if (!(p = word_at(r, column->habit, p, 1, &value.word))) return NULL;
    } else if (*p == 'n') {
        p = value_end(r, p, 0);
        value.whole = NO_INT;
    } else {
        p = column->type == INTEGER ? integer_at(r, p, &value.whole)
            : column->type == TIME  ? lasting_at(r, p, &value.whole)
                                    : float_at(r, p, &value.real);
    }
    if (!p) return NULL;
    if (e->seen & bit) drop(r, bit);
    e->seen &= ~bit;
    if ((column->type == INTEGER || column->type == TIME) && value.whole == NO_INT) return p;
    if (column->type == FLOAT && p[-1] == 'l') return p; /* null */
    if (!push(r, column, value)) return fault(r, p);
    e->seen |= bit;
    return p;
}

/* Adds the members of the object behind p as samples: series and number. Anything else among them is refused. */
static Text samples_end(Reader *r, Text p)
{
    Column *series = r->columns + r->field_count + 1, *values = series + 1;
    size_t first = series->count;
    for (p = blanks_end(p); *p == '"'; p = blanks_end(p + (*p == ','))) {
        Value name, value;
        if (!(p = new_word(r, p, 0, &name.word))) return NULL;
        for (size_t i = first; i < series->count; i++) /* only the last of equal ones counts */
            if (((int32_t *)series->values)[i] == name.word || i - first == FIELDS) return fault(r, p);
        p = blanks_end(blanks_end(p) + 1);
        if (!(p = float_at(r, p, &value.real)) || !push(r, series, name) || !push(r, values, value)) return NULL;
        p = blanks_end(p);
    }
    return p + 1;
}

/* Adds the samples of the counter event behind p, which was read before. */
static int add_samples(Reader *r, Text p)
{
    Column *series = r->columns + r->field_count + 1, *values = series + 1;
    size_t before = series->count;
    for (p = blanks_end(p); *p == '"'; p = blanks_end(p + (*p == ','))) {
        Text key = p;
        p = blanks_end(blanks_end(string_end(r, p)) + 1);
        p = memcmp(key, "\"args\"", 6) || *p != '{' ? value_end(r, p, 0) : samples_end(r, p + 1);
        if (!p) {
            series->count = values->count = before;
            return 0;
        }
        p = blanks_end(p);
    }
    return 1;
}

static int more_rows(Reader *r)
{
    size_t kinds = r->capacity, places = kinds, starts = kinds;
    return grown((void **)&r->kind, &kinds, r->rows, 4) && grown((void **)&r->place, &places, r->rows, 4) &&
           grown((void **)&r->ts, &starts, r->rows, 8) && grown((void **)&r->dur, &r->capacity, r->rows, 8);
}

/* Makes a row of the event. */
static int end_event(Reader *r, const Event *e)
{
    int32_t kind = kind_of(r, e), place = place_of(r, e);
    if (kind < 0 || place < 0 || (r->rows == r->capacity && !more_rows(r))) {
        r->short_of_memory = 1;
        return 0;
    }
    const Rights *rights = r->rights + kind;
    if (rights->counter && !add_samples(r, e->start)) return 0;
    if (rights->with_id && e->id != NO_INT && !push(r, r->columns + r->field_count, (Value){.whole = e->id})) return 0;
    if (e->seen & ~rights->fields) drop(r, e->seen & ~rights->fields);
    r->kind[r->rows] = kind;
    r->place[r->rows] = place;
    r->ts[r->rows] = e->ts;
    r->dur[r->rows++] = e->dur;
    return 1;
}

/* The id of an arrow or an asynchronous event, NO_INT for null. */
static Text id_at(Reader *r, Text p, int64_t *id)
{
    Text end = p[*p == '"'] == '-' ? NULL : integer_at(r, p, id);
    int32_t word;
    if (LIKELY(end && *id >= 0 && *id < MOST_ID)) return end;
    if (!(end = new_word(r, p, 0, &word))) return NULL;
    *id = word == NONE ? NO_INT : -(int64_t)word;
    return end;
}

/* The value of a key of the event. */
static inline Text value_at(Reader *r, Event *e, int32_t key, Text p)
{
    Text start = p;
    switch (key) {
    case PH:
    case CAT: /* looked up as they are written */
        p = word_at(r, r->habits + (PH - key), p, 0, key == PH ? &e->ph : &e->cat);
        if (!p || (key == CAT && *start == 'n')) return p;
        return *start == '"' && !memchr(start, '\\', (size_t)(p - start)) ? p : fault(r, start);
    case NAME: return word_at(r, r->habits + 2, p, 0, &e->name);
    case PID: return word_at(r, r->habits + 3, p, 0, &e->pid);
    case TID: return word_at(r, r->habits + 4, p, 0, &e->tid);
    case ID: return id_at(r, p, &e->id);
    case TS:
    case DUR:
        if (*p != 'n') return time_at(r, p, key == TS ? &e->ts : &e->dur);
        if (key == TS) e->ts = NO_INT;
        else e->dur = -1;
        return value_end(r, p, 0);
    case ARGS: return *p == 'n' ? value_end(r, p, 0) : fault(r, p);
    default: return value_end(r, p, 0);
    }
}

/* The gap at p if it was seen behind the gap `after`; 0 if it was not. last: of those seen there. */
static inline uint32_t known_gap(const Reader *r, Text p, uint32_t after, uint32_t *last)
{
    uint32_t i = r->gaps[after].child;
    for (*last = 0; i && !same(p, r->gaps[i].text, r->gaps[i].size); i = r->gaps[i].other) *last = i;
    return i;
}

/* Keeps a gap for the next time; returns the gap whose children come next: after an event's end a shared one. */
static uint32_t keep_gap(Reader *r, const Gap *gap, Text p, uint32_t size, uint32_t after, uint32_t last)
{
    if (!size || size > GAP_BYTES || r->gap_count + 1 >= GAPS) return gap->state;
    uint32_t i = r->gap_count++;
    Gap *kept = r->gaps + i;
    *kept = *gap;
    memset(kept->text, 0, sizeof kept->text);
    memcpy(kept->text, p, size);
    kept->size = size;
    kept->child = kept->other = 0;
    kept->into = i;
    if (gap->ends) {
        uint32_t *root = &r->roots[gap->state][gap->key - LAST];
        if (!*root) {
            *root = r->gap_count++;
            memset(r->gaps + *root, 0, sizeof(Gap));
        }
        kept->into = *root;
    }
    if (last) r->gaps[last].other = i;
    else r->gaps[after].child = i;
    return kept->into;
}

/* Why the text was left: it may be read with what follows it, or only by another reader. */
static int left(const Reader *r) { return r->short_of_memory ? MEMORY : r->fault >= r->end ? OPEN : REFUSED; }

/* The events of the text at p, as far as they are whole and plain. done: behind the last of them, or at the `]`. */
int scan_events(Reader *r, Text p, Text *done)
{
    static const Event NEW = {NONE, NONE, NONE, NONE, NONE, NO_INT, NO_INT, -1, 0, NULL};
    Event e = NEW;
    Text next;
    uint32_t after = BETWEEN, last;
    Gap read, *gap = r->gaps; /* the first ones are where nothing was seen before, one for each state */
    for (*done = p;; p = next) {
        uint32_t known = known_gap(r, p, after, &last);
        if (LIKELY(known)) {
            gap = r->gaps + known;
            after = gap->into;
            next = p + gap->size;
        } else {
            next = gap_end(r, p, gap->state, &read);
            gap = &read;
            if (!next && gap->key != LAST) break;
            if (next) after = keep_gap(r, gap, p, (uint32_t)(next - p), after, last);
        }
        for (uint32_t i = 0; i < gap->ends; i++, e = NEW, *done = p + gap->closed)
            if (!end_event(r, &e)) goto refused;
        if (!next) {
            if (r->last < r->end) *done = r->last;
            return r->last < r->end ? ENDED : WHOLE;
        }
        if (gap->opened) e.start = p + gap->opened;
        next = LIKELY(gap->key >= 0) ? argument_at(r, &e, gap->key, next) : value_at(r, &e, gap->key, next);
        if (!next) break;
    }
refused:
    drop(r, e.seen);
    return left(r);
}
