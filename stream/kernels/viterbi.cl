/*
 * The most probable states of a hidden Markov model of 16 states (Viterbi).
 *
 * Record: 64 observations, a byte each, of which the low 4 bits count.
 * Answer: the cost of the cheapest path, 32 bits, and its 64 states, a byte each. Of equal costs the
 * lowest state is taken.
 * Constant model: costs, 32 bits each: 16 to begin in a state; 16 x 16 to go from a state (row) to a
 * state (column); 16 x 16 to see in a state (row) an observation (column). A cost is -log of a
 * probability, in fixed point as the user likes; sums of 128 of them must stay below 2^31.
 */

#define STATES 16
#define LENGTH 64

__kernel void viterbi(__global const uchar *in, __global uchar *out, __constant int *model)
{
    size_t slot = get_global_id(0);
    __constant int *step = model + STATES, *seen = step + STATES * STATES;
    __global const uchar *observed = in + slot * LENGTH;
    __global int *total = (__global int *)(out + slot * (4 + LENGTH));
    __global uchar *path = (__global uchar *)(total + 1);
    uchar from[LENGTH][STATES];
    int costs[STATES], next[STATES];
    for (int to = 0; to < STATES; to++)
        costs[to] = model[to] + seen[to * STATES + (observed[0] & 15)];
    for (int i = 1; i < LENGTH; i++) {
        int what = observed[i] & 15;
        for (int to = 0; to < STATES; to++) {
            int least = costs[0] + step[to], least_from = 0;
            for (int state = 1; state < STATES; state++) {
                int cost = costs[state] + step[state * STATES + to];
                least_from = cost < least ? state : least_from;
                least = min(cost, least);
            }
            next[to] = least + seen[to * STATES + what];
            from[i][to] = least_from;
        }
        for (int to = 0; to < STATES; to++)
            costs[to] = next[to];
    }
    int last = 0;
    for (int state = 1; state < STATES; state++)
        last = costs[state] < costs[last] ? state : last;
    *total = costs[last];
    for (int i = LENGTH - 1; i >= 0; i--) {
        path[i] = last;
        last = i ? from[i][last] : 0;
    }
}
