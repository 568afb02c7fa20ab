#include "state/opencl/box.h"

bool range_fits(size_t offset, size_t size, size_t all)
{
    return offset <= all && size <= all - offset;
}

bool multiply_add(size_t a, size_t b, size_t c, size_t *ret)
{
    size_t product;
    return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(product, c, ret);
}

bool box_init(struct box *box, const size_t origin[3], const size_t region[3], size_t row,
              size_t slice)
{
    if (!origin || !region || region[0] == 0 || region[1] == 0 || region[2] == 0)
        return false;
    box->row = row != 0 ? row : region[0];
    if (box->row < region[0] || !multiply_add(region[1], box->row, 0, &box->slice))
        return false;
    if (slice != 0) {
        if (slice < box->slice || slice % box->row != 0)
            return false;
        box->slice = slice;
    }
    return multiply_add(origin[2], box->slice, origin[0], &box->start) &&
           multiply_add(origin[1], box->row, box->start, &box->start) &&
           multiply_add(region[2] - 1, box->slice, box->start, &box->end) &&
           multiply_add(region[1] - 1, box->row, box->end, &box->end) &&
           !__builtin_add_overflow(box->end, region[0], &box->end);
}

/* On a circle of @round, do [a, a + length) and [b, b + length) have a point in common? */
static bool box_meet_on_circle(size_t a, size_t b, size_t length, size_t round)
{
    size_t ahead = a >= b ? a - b : b - a;
    return ahead < length || round - ahead < length;
}

bool box_overlaps(const struct box *a, const struct box *b, const size_t region[3])
{
    if (a->end <= b->start || b->end <= a->start)
        return false;
    if (!box_meet_on_circle(a->start % a->row, b->start % b->row, region[0], a->row))
        return false;
    /* A row that crosses the pitch lies in two: count it as both. */
    size_t rows = a->slice / a->row;
    size_t height = region[1] + (region[0] + a->start % a->row > a->row ||
                                 region[0] + b->start % b->row > b->row);
    return box_meet_on_circle(a->start % a->slice / a->row, b->start % b->slice / b->row, height,
                              rows);
}
