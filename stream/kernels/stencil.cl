/*
 * A filter of 3 x 3 weights over a tile.
 *
 * Record and answer: a tile of 32 rows of 32 numbers of 32 bits. Each number of the answer is the sum of
 * its 9 neighbours (itself among them), times their weights, modulo 2^32; what lies beyond the tile is 0.
 * Constant filter: 9 weights of 32 bits, row by row.
 *
 * A work-item has one row.
 */

#define SIDE 32

__kernel void stencil(__global const uint *in, __global uint *out, __constant uint *filter)
{
    size_t slot = get_global_id(0) / SIDE;
    int row = get_global_id(0) % SIDE;
    in += slot * SIDE * SIDE;
    out += slot * SIDE * SIDE + row * SIDE;
    for (int column = 0; column < SIDE; column++) {
        uint sum = 0;
        for (int y = max(row - 1, 0); y <= min(row + 1, SIDE - 1); y++)
            for (int x = max(column - 1, 0); x <= min(column + 1, SIDE - 1); x++)
                sum += in[y * SIDE + x] * filter[(y - row + 1) * 3 + x - column + 1];
        out[column] = sum;
    }
}
