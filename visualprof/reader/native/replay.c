/* The replay of a recording, as visualprof/views/measure/replay/graph.py describes it. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

/*
 * Computes the time of each node: the latest time at which a dependency allows it, or the measured time if the node has
 * no dependencies.
 *
 * Nodes are in topological order.
 *
 * first: (n + 1,) slice of each node's incoming edges.
 * src: (e,) the earlier node of each edge.
 * ns: (e,) delay of each edge.
 * dur: (n,) duration of each node's work.
 * at: (n,) measured times; overwritten with the computed times.
 * via: (n,) written: the edge that determined each time, -1 for none. NULL if these are not needed.
 */
API void vp_replay(const int64_t *first, const int32_t *src, const double *ns, const double *dur, int64_t n, double *at,
                   int64_t *via)
{
    for (int64_t node = 0; node < n; node++) {
        double latest = -INFINITY;
        int64_t latest_edge = -1;
        for (int64_t edge = first[node]; edge < first[node + 1]; edge++) {
            double ready = at[src[edge]] + dur[src[edge]] + ns[edge];
            if (ready > latest) {
                latest = ready;
                latest_edge = edge;
            }
        }
        if (latest_edge >= 0) at[node] = latest;
        if (via) via[node] = latest_edge;
    }
}

/*
 * Sorts edges by the later node, in stable order, without those that lead backwards.
 *
 * src, dst, ns, kind: (n,). place: (nodes + 1,) work space. out_src, out_dst, out_ns, out_kind: (n,) written.
 * Returns the number of edges that are left, or -1 if a node is out of range.
 */
API int64_t vp_sort_edges(const int32_t *src, const int32_t *dst, const double *ns, const int32_t *kind, int64_t n,
                          int64_t nodes, int64_t *place, int32_t *out_src, int32_t *out_dst, double *out_ns,
                          int32_t *out_kind)
{
    memset(place, 0, (size_t)(nodes + 1) * sizeof *place);
    for (int64_t i = 0; i < n; i++) {
        if (dst[i] < 0 || dst[i] >= nodes) return -1;
        place[dst[i] + 1] += src[i] < dst[i];
    }
    for (int64_t node = 0; node < nodes; node++) place[node + 1] += place[node];
    int64_t count = place[nodes];
    for (int64_t i = 0; i < n; i++) {
        if (src[i] >= dst[i]) continue;
        int64_t to = place[dst[i]]++;
        out_src[to] = src[i];
        out_dst[to] = dst[i];
        out_ns[to] = ns[i];
        out_kind[to] = kind[i];
    }
    return count;
}

/*
 * Follows the edges that determined the times, from a node back to a start. Returns their number.
 *
 * at, via: the results of `vp_replay`. src: as for `vp_replay`.
 * node: the last node. start: time at which the path begins.
 * edges: (node + 1,) the first ones are written, the last edge first.
 */
API int64_t vp_path(const double *at, const int64_t *via, const int32_t *src, int64_t node, double start, int64_t *edges)
{
    int64_t count = 0;
    for (; at[node] > start && via[node] >= 0; node = src[via[node]]) edges[count++] = via[node];
    return count;
}

/*
 * Computes the latest time of each node that delays none of the nodes that depend on it.
 *
 * first, src, ns, dur: as for `vp_replay`.
 * late: (n,) the latest times of the end nodes, INFINITY for the others; overwritten.
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

/* A path to a node: its first node, its last edge, the path to the source of that edge, and its length. */
typedef struct {
    int32_t origin, previous;
    int64_t edge;
    double ns;
} Path;

/* Writes the parts of a path: the parts of the path to the source of its last edge, the work there, and the edge. */
static void sum_parts(double *out, const double *before, const Path *path, int32_t from, const double *ns,
                    const double *dur, const int32_t *kind, const int32_t *work, int64_t parts)
{
    for (int64_t part = 0; part < parts; part++) out[part] = before ? before[part] : 0;
    if (before && work[from] >= 0) out[work[from]] += dur[from];
    out[kind[path->edge]] += ns[path->edge];
}

/*
 * Finds the longest paths between retained nodes that lead through no other retained node. A node with more than
 * `max_paths` incoming paths is retained as well.
 *
 * first, src, ns, dur: as for `vp_replay`.
 * kind: (e,) part of the breakdown to which each edge belongs.
 * work: (n,) part to which each node's work belongs, -1 for none.
 * parts: number of parts, 0 without a breakdown.
 * retained: (n,) read and written.
 * capacity: number of paths for which the outputs have space.
 * out_src, out_dst: (capacity,) first and last node of each path, ordered by the last.
 * out_ns: (capacity,) time from the end of the work of the first node to the last node.
 * out_parts: (capacity, parts) the same time by part.
 *
 * Returns the number of paths, which may exceed the capacity, or -1 if memory is exhausted.
 */
API int64_t vp_contract(const int64_t *first, const int32_t *src, const double *ns, const double *dur,
                        const int32_t *kind, const int32_t *work, int64_t n, int64_t parts, int64_t max_paths,
                        uint8_t *retained, int64_t capacity, int32_t *out_src, int32_t *out_dst, double *out_ns, double *out_parts)
{
    size_t size = (size_t)n + 1;
    Path *paths = malloc(size * (size_t)max_paths * sizeof *paths), *best = malloc(size * sizeof *best);
    double *sums = parts ? malloc(size * (size_t)(max_paths * parts) * sizeof *sums) : NULL;
    int32_t *path_count = calloc(size, sizeof *path_count), *slot = calloc(size, sizeof *slot);
    int64_t count = paths && best && path_count && slot && (sums || !parts) ? 0 : -1;
    for (int64_t node = 0; count >= 0 && node < n; node++) {
        int32_t origins = 0;
        for (int64_t edge = first[node]; edge < first[node + 1]; edge++) {
            int32_t from = src[edge], incoming = retained[from] ? 1 : path_count[from];
            for (int32_t i = 0; i < incoming; i++) {
                const Path *path = &paths[from * max_paths + i];
                int32_t origin = retained[from] ? from : path->origin, index = slot[origin];
                double length = retained[from] ? ns[edge] : path->ns + dur[from] + ns[edge];
                if (index >= origins || best[index].origin != origin) {
                    index = slot[origin] = origins++;
                    best[index] = (Path){origin, i, edge, -INFINITY};
                }
                if (length > best[index].ns) best[index] = (Path){origin, i, edge, length};
            }
        }
        retained[node] = retained[node] || origins > max_paths;
        path_count[node] = retained[node] ? 0 : origins;
        for (int32_t i = 0; i < origins; i++) {
            int32_t from = src[best[i].edge];
            double *out = NULL;
            if (sums && (!retained[node] || count < capacity))
                out = retained[node] ? out_parts + count * parts : sums + (node * max_paths + i) * parts;
            if (out)
                sum_parts(out, retained[from] ? NULL : sums + (from * max_paths + best[i].previous) * parts, &best[i], from,
                          ns, dur, kind, work, parts);
            if (!retained[node]) {
                paths[node * max_paths + i] = best[i];
                continue;
            }
            if (count < capacity) {
                out_src[count] = best[i].origin;
                out_dst[count] = (int32_t)node;
                out_ns[count] = best[i].ns;
            }
            count++;
        }
    }
    free(paths);
    free(best);
    free(sums);
    free(path_count);
    free(slot);
    return count;
}
