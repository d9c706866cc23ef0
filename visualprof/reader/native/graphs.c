/* Contents of launches of captured graphs, see visualprof/reader/trace/expansion.py. */
#include <stdint.h>

#include "api.h"

/*
 * Writes the events of all launches; those of a launch start at its row `begin`.
 *
 * call, template, begin, track, step: (launches,).
 * work: rows of the kernels. first: (launches + 1,) slice of each launch in `work`.
 * nodes: (templates + 1,) slices in inside_name, inside_category and inside_parent.
 * kernels: (templates + 1,) slices in inside_owner.
 * ts ... step_of: columns of the events, read at the rows of the kernels and written at the new rows.
 * owner: written for each kernel of `work`.
 */
API void vp_expand_launches(int64_t launches, const int32_t *call, const int32_t *template, const int64_t *begin,
                   const int32_t *track, const int32_t *step, const int32_t *work, const int64_t *first,
                   const int64_t *nodes, const int64_t *kernels, const int32_t *inside_name,
                   const uint8_t *inside_category, const int32_t *inside_parent, const int32_t *inside_owner,
                   int64_t *ts, int64_t *dur, int32_t *name, uint8_t *category, int32_t *track_of, int32_t *parent,
                   int32_t *step_of, int32_t *owner)
{
    for (int64_t l = 0; l < launches; l++) {
        int64_t low = nodes[template[l]], count = nodes[template[l] + 1] - low, at = begin[l];
        const int32_t *owners = inside_owner + kernels[template[l]];
        int64_t *start = ts + at, *end = dur + at;
        for (int64_t i = 0; i < count; i++) {
            start[i] = INT64_MAX, end[i] = INT64_MIN;
            name[at + i] = inside_name[low + i];
            category[at + i] = inside_category[low + i];
            parent[at + i] = i ? (int32_t)(at + inside_parent[low + i]) : call[l];
            track_of[at + i] = track[l];
            step_of[at + i] = step[l];
        }
        for (int64_t k = first[l]; k < first[l + 1]; k++) {
            int32_t node = owners[k - first[l]];
            int64_t from = ts[work[k]], until = from + dur[work[k]];
            if (from < start[node]) start[node] = from;
            if (until > end[node]) end[node] = until;
            owner[k] = (int32_t)(at + node);
        }
        for (int64_t i = count - 1; i > 0; i--) { /* children come after their parents */
            int64_t around = inside_parent[low + i];
            if (start[i] < start[around]) start[around] = start[i];
            if (end[i] > end[around]) end[around] = end[i];
        }
        for (int64_t i = 0; i < count; i++) end[i] -= start[i];
    }
}

/* Hashes the names of each launch in order, like `_launch_hashes` of graph_capture/launches.py. */
API void vp_launch_hashes(const int32_t *name, const int32_t *work, const int64_t *first, int64_t launches, int64_t *hash)
{
    for (int64_t l = 0; l < launches; l++) {
        uint64_t sum = 0;
        for (int64_t k = first[l]; k < first[l + 1]; k++) {
            uint64_t mixed = (uint64_t)name[work[k]] * 0x9E3779B97F4A7C15u ^ (uint64_t)(k - first[l]) * 0xD6E8FEB86659FD93u;
            mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
            mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
            sum += mixed ^ mixed >> 31;
        }
        hash[l] = (int64_t)sum;
    }
}

/*
 * Pairs the events of selected tracks with the calls of the same correlation id. Returns the number of pairs.
 *
 * corr, track: (n,).
 * wanted: whether each track is selected.
 * table: (size,) row of the call of each id from `low` on, -1 for none.
 * src: (n,) rows of the calls, written.
 * dst: (n,) rows of the events, ascending, written.
 */
API int64_t vp_match_launches(const int64_t *corr, const int32_t *track, int64_t n, const uint8_t *wanted,
                              const int32_t *table, int64_t low, int64_t size, int32_t *src, int32_t *dst)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!wanted[track[i]] || corr[i] < low || corr[i] - low >= size || table[corr[i] - low] < 0) continue;
        src[count] = table[corr[i] - low];
        dst[count++] = (int32_t)i;
    }
    return count;
}
