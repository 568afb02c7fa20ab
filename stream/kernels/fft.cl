/*
 * The discrete Fourier transform of 256 complex numbers, divided by 256, in fixed point: all devices give
 * the same bytes.
 *
 * Record and answer: 256 times a real and an imaginary part, 16 bits each with a sign.
 *
 * Each of the 8 passes halves its sums, so that numbers with a magnitude of at most 32767 stay so; parts
 * of larger ones are cut off at 16 bits. Products are rounded to the nearest.
 */

#define POINTS 256
#define QUARTER (POINTS / 4)

/* 32767 * sin(2 pi i / POINTS), for a quarter of a turn. */
__constant short sine[QUARTER + 1] = {
    0, 804, 1608, 2410, 3212, 4011, 4808, 5602, 6393, 7179, 7962, 8739, 9512,
    10278, 11039, 11793, 12539, 13279, 14010, 14732, 15446, 16151, 16846, 17530, 18204, 18868,
    19519, 20159, 20787, 21403, 22005, 22594, 23170, 23731, 24279, 24811, 25329, 25832, 26319,
    26790, 27245, 27683, 28105, 28510, 28898, 29268, 29621, 29956, 30273, 30571, 30852, 31113,
    31356, 31580, 31785, 31971, 32137, 32285, 32412, 32521, 32609, 32678, 32728, 32757, 32767,
};

/* Of an angle of less than three quarters of a turn. */
int fft_sine(int angle)
{
    if (angle <= QUARTER)
        return sine[angle];
    return angle <= 2 * QUARTER ? sine[2 * QUARTER - angle] : -sine[angle - 2 * QUARTER];
}

int fft_reverse_bits(int i)
{
    int reversed = 0;
    for (int bit = 1; bit < POINTS; bit *= 2, i >>= 1)
        reversed = reversed * 2 + (i & 1);
    return reversed;
}

__kernel void fft(__global const short2 *in, __global short2 *out)
{
    size_t slot = get_global_id(0);
    short2 points[POINTS];
    in += slot * POINTS;
    out += slot * POINTS;
    for (int i = 0; i < POINTS; i++)
        points[fft_reverse_bits(i)] = in[i];
    for (int apart = 1; apart < POINTS; apart *= 2) {
        for (int i = 0; i < apart; i++) {
            int angle = i * (POINTS / 2 / apart);
            int re = fft_sine(angle + QUARTER), im = -fft_sine(angle);
            for (int j = i; j < POINTS; j += 2 * apart) {
                int2 a = convert_int2(points[j]), b = convert_int2(points[j + apart]);
                b = (int2)(b.x * re - b.y * im + (1 << 14), b.x * im + b.y * re + (1 << 14)) >> 15;
                points[j] = convert_short2_sat((a + b) >> 1);
                points[j + apart] = convert_short2_sat((a - b) >> 1);
            }
        }
    }
    for (int i = 0; i < POINTS; i++)
        out[i] = points[i];
}
