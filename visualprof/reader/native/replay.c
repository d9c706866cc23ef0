/* The replay of a recording, as visualprof/views/measure/replay/graph.py describes it. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "api.h"

/*
 * When each moment comes: the latest of all that it waits for, else as it was measured.
 *
 * first: (n + 1,) slice of each moment's waits. src: (e,) an earlier moment. ns: (e,). dur: (n,) of the moments' work.
 * at: (n,) as measured, written. via: (n,) the wait that each came by, -1 before, written.
 */
API void vp_replay(const int64_t *first, const int32_t *src, const double *ns, const double *dur, int64_t n, double *at,
                   int64_t *via)
{
    for (int64_t node = 0; node < n; node++) {
        double latest = -INFINITY;
        for (int64_t edge = first[node]; edge < first[node + 1]; edge++) {
            double ready = at[src[edge]] + dur[src[edge]] + ns[edge];
            if (ready > latest) {
                latest = ready;
                via[node] = edge;
            }
        }
        if (via[node] >= 0) at[node] = latest;
    }
}

/*
 * When each moment may come at the latest: before all that waits for it.
 *
 * first, src, ns, dur: as above. late: (n,) the latest of the ends, INFINITY of the others, written.
 */
API void vp_latest(const int64_t *first, const int32_t *src, const double *ns, const double *dur, int64_t n,
                   double *late)
{
    for (int64_t node = n - 1; node >= 0; node--) {
        for (int64_t edge = first[node]; edge < first[node + 1]; edge++) {
            double ready = late[node] - ns[edge] - dur[src[edge]];
            if (ready < late[src[edge]]) late[src[edge]] = ready;
        }
    }
}

/* A way to a moment: where it begins, how long it is, and by which wait and which way to the moment before that. */
typedef struct {
    int32_t origin, way;
    int64_t edge;
    double ns;
} Way;

/* The parts of a way: those of the way to the moment before, the work there, and the wait. */
static void compose(double *out, const double *before, const Way *way, int32_t from, const double *ns,
                    const double *dur, const int32_t *kind, const int32_t *work, int64_t parts)
{
    for (int64_t part = 0; part < parts; part++) out[part] = before ? before[part] : 0;
    if (before && work[from] >= 0) out[work[from]] += dur[from];
    out[kind[way->edge]] += ns[way->edge];
}

/*
 * The longest ways between moments that are kept, through those that are not. A moment that more ways lead to than
 * `most` is kept, too.
 *
 * first, src, ns, dur: as above. kind: (e,) and work: (n,) the part that a wait and a moment's work are of, -1 for none.
 * parts: how many there are, 0 for nobody asks. kept: (n,) read and written. out_src, out_dst: (room,) kept moments by
 * dst; out_ns: (room,) from the end of the work of src to dst; out_made: (room, parts) the same by part.
 * Returns: how many there are, which may be more than there is room for; -1 without memory.
 */
API int64_t vp_contract(const int64_t *first, const int32_t *src, const double *ns, const double *dur,
                        const int32_t *kind, const int32_t *work, int64_t n, int64_t parts, int64_t most, uint8_t *kept,
                        int64_t room, int32_t *out_src, int32_t *out_dst, double *out_ns, double *out_made)
{
    size_t size = (size_t)n + 1;
    Way *ways = malloc(size * (size_t)most * sizeof *ways), *found = malloc(size * sizeof *found);
    double *made = parts ? malloc(size * (size_t)(most * parts) * sizeof *made) : NULL;
    int32_t *many = calloc(size, sizeof *many), *place = calloc(size, sizeof *place);
    int64_t count = ways && found && many && place && (made || !parts) ? 0 : -1;
    for (int64_t node = 0; count >= 0 && node < n; node++) {
        int32_t listed = 0;
        for (int64_t edge = first[node]; edge < first[node + 1]; edge++) {
            int32_t from = src[edge], before = kept[from] ? 1 : many[from];
            for (int32_t i = 0; i < before; i++) {
                const Way *way = &ways[from * most + i];
                int32_t origin = kept[from] ? from : way->origin, at = place[origin];
                double taken = kept[from] ? ns[edge] : way->ns + dur[from] + ns[edge];
                if (at >= listed || found[at].origin != origin) {
                    at = place[origin] = listed++;
                    found[at] = (Way){origin, i, edge, -INFINITY};
                }
                if (taken > found[at].ns) found[at] = (Way){origin, i, edge, taken};
            }
        }
        kept[node] = kept[node] || listed > most;
        many[node] = kept[node] ? 0 : listed;
        for (int32_t i = 0; i < listed; i++) {
            int32_t from = src[found[i].edge];
            double *out = NULL;
            if (made && (!kept[node] || count < room)) out = kept[node] ? out_made + count * parts : made + (node * most + i) * parts;
            if (out)
                compose(out, kept[from] ? NULL : made + (from * most + found[i].way) * parts, &found[i], from, ns, dur,
                        kind, work, parts);
            if (!kept[node]) {
                ways[node * most + i] = found[i];
                continue;
            }
            if (count < room) {
                out_src[count] = found[i].origin;
                out_dst[count] = (int32_t)node;
                out_ns[count] = found[i].ns;
            }
            count++;
        }
    }
    free(ways);
    free(found);
    free(made);
    free(many);
    free(place);
    return count;
}
