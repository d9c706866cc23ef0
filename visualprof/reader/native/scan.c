/*
 * Converts Chrome trace events from JSON text to columns in one pass, without an object per event.
 *
 * All bytes between two scalar values are one token (a gap). A gap is parsed once and then recognized by comparison: the
 * same bytes after the same gap have the same meaning. A value with few distinct texts is first compared with the text
 * that followed the same values the last time.
 */
#include "scan.h"
#include <math.h>

/* Returns whether a value may be a name or an identifier: a string or a number of plausible size. */
static int is_label(Text p, Text end)
{
    if (*p == '"') return 1;
    return (*p == '-' || is_digit(*p)) && end - p <= 18 &&
           !memchr(p, 'e', (size_t)(end - p)) && !memchr(p, 'E', (size_t)(end - p));
}

/* Reads a value and sets its number. any: accept every type; otherwise only labels, and null becomes NONE. */
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
    *id = find_word(&r->words, p, (uint32_t)(end - p), *p != '"' && *p != '[' && *p != '{', 1);
    if (*id < 0) {
        r->out_of_memory = 1;
        return fault(r, p);
    }
    Word *word = r->words.words + *id;
    if (r->words.count > known) word->invalid = !valid_utf8(p, word->size);
    return word->invalid ? fault(r, p) : end;
}

/* Like `new_word`, but compares the value first with the one that the predictor expects. */
static inline Text word_at(Reader *r, Predictor *predictor, Text p, int any, int32_t *id)
{
    int32_t *guess = predictor->guess + predictor->history % GUESSES;
    const Word *word = r->words.words + *guess;
    if (LIKELY(word->size && same(p, word->text, word->size) && (!word->bare || is_delimiter(p[word->size])))) {
        p += word->size;
    } else {
        if (!(p = new_word(r, p, any, id))) return NULL;
        *guess = *id;
    }
    *id = *guess;
    predictor->history = (predictor->history << 3) ^ ((uint32_t)*id * 0x9E37u);
    return p;
}

/* Returns which parts of events with a phase and category are stored. */
static KindRules kind_rules(const Reader *r, const Word *ph, const Word *cat)
{
    KindRules rules = {~(uint64_t)0, 0, 0};
    char phase = ph->size > 2 ? (char)ph->text[1] : 0;
    uint32_t size = cat->size > 2 ? cat->size - 2 : 0;
    for (uint32_t i = 0; i < r->cat_count; i++)
        if (r->cats[i].size == size && !memcmp(r->cats[i].name, cat->text + 1, size)) rules.fields = r->cats[i].mask;
    if (ph->size == 3 && strchr("stf", phase)) rules.fields = 0;
    rules.with_id = phase && strchr("stfbneSTF", phase);
    rules.counter = phase == 'C';
    return rules;
}

/* Returns the number of the event's (ph, cat, name), -1 if memory is exhausted. */
static int32_t find_kind(Reader *r, const Event *e)
{
    Word *name = r->words.words + e->name;
    uint64_t key = (uint64_t)(uint32_t)e->ph << 32 | (uint32_t)e->cat;
    if (LIKELY(name->kind_key == key)) return name->kind;
    uint8_t triple[12 + 16] = {0};
    uint32_t known = r->kinds.count;
    memcpy(triple, &e->ph, 12);
    int32_t kind = find_word(&r->kinds, triple, 12, 0, 1);
    if (kind < 0 || !ensure_capacity((void **)&r->rules, &r->rules_capacity, (size_t)kind, sizeof *r->rules)) return -1;
    if (r->kinds.count > known) r->rules[kind] = kind_rules(r, r->words.words + e->ph, r->words.words + e->cat);
    name->kind_key = key;
    return name->kind = kind;
}

/* Returns the number of the event's (pid, tid), -1 if memory is exhausted. */
static int32_t find_thread(Reader *r, const Event *e)
{
    Word *tid = r->words.words + e->tid;
    if (LIKELY(tid->thread_key == (uint32_t)e->pid)) return tid->thread;
    uint8_t pair[8 + 16] = {0};
    memcpy(pair, &e->pid, 8);
    int32_t thread = find_word(&r->threads, pair, 8, 0, 1);
    if (thread < 0) return -1;
    tid->thread_key = (uint32_t)e->pid;
    return tid->thread = thread;
}

/* A value of a column; the type of the column selects the member. */
typedef union { int64_t integer; double real; int32_t word; } Value;

static inline int push(Reader *r, Column *column, Value value)
{
    if (column->count == column->capacity) {
        size_t capacity = column->capacity;
        if (!ensure_capacity((void **)&column->rows, &capacity, column->count, sizeof *column->rows) ||
            !ensure_capacity(&column->values, &column->capacity, column->count, 8)) {
            r->out_of_memory = 1;
            return 0;
        }
    }
    column->rows[column->count] = (uint32_t)r->rows;
    if (column->type == TEXT) ((int32_t *)column->values)[column->count] = value.word;
    else if (column->type == FLOAT) ((double *)column->values)[column->count] = value.real;
    else ((int64_t *)column->values)[column->count] = value.integer;
    column->count++;
    return 1;
}

/* Removes arguments of the event from the columns. */
static void drop(Reader *r, uint64_t fields)
{
    for (uint32_t i = 0; fields; i++, fields >>= 1) r->columns[i].count -= fields & 1;
}

/* Reads one argument of the event. An earlier argument with the same key is replaced. */
static inline Text argument_at(Reader *r, Event *e, int32_t field, Text p)
{
    Column *column = r->columns + field;
    uint64_t bit = (uint64_t)1 << field;
    Value value;
    if (column->type == TEXT) {
        if (!(p = word_at(r, column->predictor, p, 1, &value.word))) return NULL;
    } else if (*p == 'n') {
        p = value_end(r, p, 0);
        value.integer = NO_INT;
    } else {
        p = column->type == INTEGER ? integer_at(r, p, &value.integer)
            : column->type == TIME  ? duration_at(r, p, &value.integer)
                                    : float_at(r, p, &value.real);
    }
    if (!p) return NULL;
    if (e->seen & bit) drop(r, bit);
    e->seen &= ~bit;
    if ((column->type == INTEGER || column->type == TIME) && value.integer == NO_INT) return p;
    if (column->type == FLOAT && p[-1] == 'l') return p; /* null */
    if (!push(r, column, value)) return fault(r, p);
    e->seen |= bit;
    return p;
}

/* Adds the members of the object at p as samples, each a series and a number. Other values are rejected. */
static Text samples_end(Reader *r, Text p)
{
    Column *series = r->columns + r->field_count + 1, *values = series + 1;
    size_t first = series->count;
    for (p = blanks_end(p); *p == '"'; p = blanks_end(p + (*p == ','))) {
        Value name, value;
        if (!(p = new_word(r, p, 0, &name.word))) return NULL;
        for (size_t i = first; i < series->count; i++) /* of equal keys only the last would count: rejected */
            if (((int32_t *)series->values)[i] == name.word || i - first == MAX_FIELDS) return fault(r, p);
        p = blanks_end(blanks_end(p) + 1);
        if (!(p = float_at(r, p, &value.real)) || !push(r, series, name) || !push(r, values, value)) return NULL;
        p = blanks_end(p);
    }
    return p + 1;
}

/* Adds the samples of the counter event at p, which has been parsed before. */
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

static int double_rows(Reader *r)
{
    size_t kinds = r->capacity, threads = kinds, starts = kinds;
    return ensure_capacity((void **)&r->kind, &kinds, r->rows, 4) &&
           ensure_capacity((void **)&r->thread, &threads, r->rows, 4) &&
           ensure_capacity((void **)&r->ts, &starts, r->rows, 8) &&
           ensure_capacity((void **)&r->dur, &r->capacity, r->rows, 8);
}

/* Appends the event as a row. */
static int end_event(Reader *r, const Event *e)
{
    int32_t kind = find_kind(r, e), thread = find_thread(r, e);
    if (kind < 0 || thread < 0 || (r->rows == r->capacity && !double_rows(r))) {
        r->out_of_memory = 1;
        return 0;
    }
    const KindRules *rules = r->rules + kind;
    if (rules->counter && !add_samples(r, e->start)) return 0;
    if (rules->with_id && e->id != NO_INT && !push(r, r->columns + r->field_count, (Value){.integer = e->id})) return 0;
    if (e->seen & ~rules->fields) drop(r, e->seen & ~rules->fields);
    r->kind[r->rows] = kind;
    r->thread[r->rows] = thread;
    r->ts[r->rows] = e->ts;
    r->dur[r->rows++] = e->dur;
    return 1;
}

/* Reads the id of an arrow or an asynchronous event, NO_INT for null. */
static Text id_at(Reader *r, Text p, int64_t *id)
{
    Text end = p[*p == '"'] == '-' ? NULL : integer_at(r, p, id);
    int32_t word;
    if (LIKELY(end && *id >= 0 && *id < MAX_ID)) return end;
    if (!(end = new_word(r, p, 0, &word))) return NULL;
    *id = word == NONE ? NO_INT : -(int64_t)word;
    return end;
}

/* Reads the value of a key of the event. */
static inline Text value_at(Reader *r, Event *e, int32_t key, Text p)
{
    Text start = p;
    switch (key) {
    case PH:
    case CAT: /* looked up by their text, so escapes are rejected */
        p = word_at(r, r->predictors + (PH - key), p, 0, key == PH ? &e->ph : &e->cat);
        if (!p || (key == CAT && *start == 'n')) return p;
        return *start == '"' && !memchr(start, '\\', (size_t)(p - start)) ? p : fault(r, start);
    case NAME: return word_at(r, r->predictors + 2, p, 0, &e->name);
    case PID: return word_at(r, r->predictors + 3, p, 0, &e->pid);
    case TID: return word_at(r, r->predictors + 4, p, 0, &e->tid);
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

/* Returns the gap at p if it was seen after the gap `after`, otherwise 0 and in `last` the last gap seen there. */
static inline uint32_t known_gap(const Reader *r, Text p, uint32_t after, uint32_t *last)
{
    uint32_t i = r->gaps[after].child;
    for (*last = 0; i && !same(p, r->gaps[i].text, r->gaps[i].size); i = r->gaps[i].sibling) *last = i;
    return i;
}

/*
 * Stores a gap for later comparisons. Returns the gap whose children are compared next; all gaps after the end of an event
 * with the same state and key share one.
 */
static uint32_t store_gap(Reader *r, const Gap *gap, Text p, uint32_t size, uint32_t after, uint32_t last)
{
    if (!size || size > GAP_BYTES || r->gap_count + 1 >= GAPS) return gap->state;
    uint32_t i = r->gap_count++;
    Gap *stored = r->gaps + i;
    *stored = *gap;
    memset(stored->text, 0, sizeof stored->text);
    memcpy(stored->text, p, size);
    stored->size = size;
    stored->child = stored->sibling = 0;
    stored->next = i;
    if (gap->ends) {
        uint32_t *root = &r->roots[gap->state][gap->key - LAST];
        if (!*root) {
            *root = r->gap_count++;
            memset(r->gaps + *root, 0, sizeof(Gap));
        }
        stored->next = *root;
    }
    if (last) r->gaps[last].sibling = i;
    else r->gaps[after].child = i;
    return stored->next;
}

/* Returns why the scan stopped: the text may be incomplete, or only Python can read it. */
static int stop_reason(const Reader *r) { return r->out_of_memory ? MEMORY : r->fault >= r->end ? OPEN : REFUSED; }

/* Scans the events of the text at p up to the first incomplete or rejected one. done: set to the end of the last event
 * that was read, or to the `]`. */
int scan_events(Reader *r, Text p, Text *done)
{
    static const Event NEW = {NONE, NONE, NONE, NONE, NONE, NO_INT, NO_INT, -1, 0, NULL};
    Event e = NEW;
    Text next;
    uint32_t after = BETWEEN, last;
    Gap read, *gap = r->gaps; /* the first gaps are the roots, one per state */
    for (*done = p;; p = next) {
        uint32_t known = known_gap(r, p, after, &last);
        if (LIKELY(known)) {
            gap = r->gaps + known;
            after = gap->next;
            next = p + gap->size;
        } else {
            next = gap_end(r, p, gap->state, &read);
            gap = &read;
            if (!next && gap->key != LAST) break;
            if (next) after = store_gap(r, gap, p, (uint32_t)(next - p), after, last);
        }
        for (uint32_t i = 0; i < gap->ends; i++, e = NEW, *done = p + gap->closed)
            if (!end_event(r, &e)) goto rejected;
        if (!next) {
            if (r->last < r->end) *done = r->last;
            return r->last < r->end ? ENDED : WHOLE;
        }
        if (gap->opened) e.start = p + gap->opened;
        next = LIKELY(gap->key >= 0) ? argument_at(r, &e, gap->key, next) : value_at(r, &e, gap->key, next);
        if (!next) break;
    }
rejected:
    drop(r, e.seen);
    return stop_reason(r);
}
