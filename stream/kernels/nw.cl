/*
 * The best alignment of two sequences (Needleman and Wunsch): 1 for two equal letters, -1 for two different
 * ones and for a letter beside a gap. Where several are best, one with letters side by side is preferred to
 * a gap in the second sequence, and that to a gap in the first, from the end on.
 *
 * Record: two sequences of 64 bytes; a shorter one has zeros after its end.
 * Answer: the score and the length of the alignment, 32 bits each, and both sequences aligned, 128 bytes
 * each: '-' is a gap, zeros follow the end.
 */

#define LONGEST 64
#define GAP '-'

enum { BOTH, FIRST, SECOND };

__kernel void nw(__global const uchar *in, __global uchar *out)
{
    size_t slot = get_global_id(0);
    __global const uchar *a = in + slot * 2 * LONGEST, *b = a + LONGEST;
    __global int *score = (__global int *)(out + slot * (8 + 4 * LONGEST));
    __global uchar *aligned_a = (__global uchar *)(score + 2), *aligned_b = aligned_a + 2 * LONGEST;
    uchar from[LONGEST][LONGEST]; /* which letters an alignment that ends here ends with */
    int best[LONGEST + 1];        /* score of the row above, left of this column the row itself */
    int length_a = 0, length_b = 0;
    while (length_a < LONGEST && a[length_a])
        length_a++;
    while (length_b < LONGEST && b[length_b])
        length_b++;
    for (int j = 0; j <= length_b; j++)
        best[j] = -j;
    for (int i = 0; i < length_a; i++) {
        int corner = best[0];
        best[0] = -i - 1;
        for (int j = 0; j < length_b; j++) {
            int both = corner + (a[i] == b[j] ? 1 : -1), gap_b = best[j + 1] - 1, gap_a = best[j] - 1;
            int most = max(both, max(gap_b, gap_a));
            corner = best[j + 1];
            best[j + 1] = most;
            from[i][j] = most == both ? BOTH : most == gap_b ? FIRST : SECOND;
        }
    }
    /* From the end: counted first, as the alignment is written from its begin. */
    int length = 0;
    for (int pass = 0; pass < 2; pass++) {
        int at = length, i = length_a, j = length_b;
        while (i || j) {
            int step = i == 0 ? SECOND : j == 0 ? FIRST : from[i - 1][j - 1];
            i -= step != SECOND;
            j -= step != FIRST;
            if (pass == 0) {
                length++;
                continue;
            }
            at--;
            aligned_a[at] = step == SECOND ? GAP : a[i];
            aligned_b[at] = step == FIRST ? GAP : b[j];
        }
    }
    for (int at = length; at < 2 * LONGEST; at++)
        aligned_a[at] = aligned_b[at] = 0;
    score[0] = best[length_b];
    score[1] = length;
}
