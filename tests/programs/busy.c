/**
 * One large buffer, of which a kernel rewrites a part of the chunks all the time: what is moved has
 * changed before it is there.
 *
 *   busy [--mib N] [--percent N] [--rest MS] [--flat 1] [--contiguous 1]
 *
 * Prints "ready" when all of it is written, then goes on, as long as TEST_UNTIL says so, a pass
 * taking a few launches; at the end every word is read and checked. With --rest a pass is one
 * launch, and so many milliseconds without any. Words are noise, with --flat ones that compress.
 * The part is of every hundred chunks the first few; with --contiguous it is the beginning.
 */
#include "prog.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MIB = 1 << 20, CHUNK = 64 << 10, WORDS = CHUNK / 4, HUNDRED = 100, LAUNCHES = 20 };

static const char *const source =
    "uint word(ulong i, uint round) {\n"
    "    return FLAT ? (uint)(i / 1024) + round : (uint)i * 2654435761u ^ (uint)(i >> 32) ^ "
    "round;\n"
    "}\n"
    "kernel void fill(global uint *a) { a[get_global_id(0)] = word(get_global_id(0), 0); }\n"
    "/* Of every PERIOD chunks the first few. */\n"
    "kernel void rewrite(global uint *a, uint few, uint round) {\n"
    "    const ulong chunk = get_global_id(0) / WORDS;\n"
    "    const ulong at = (chunk / few * PERIOD + chunk % few) * WORDS +\n"
    "                     get_global_id(0) % WORDS;\n"
    "    a[at] = word(at, round);\n"
    "}\n";

static bool flat;

static uint32_t word(uint64_t i, uint32_t round)
{
    return flat ? (uint32_t)(i / 1024) + round
                : (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 32) ^ round;
}

static void check(const struct prog *p, cl_mem buffer, size_t size, size_t period, uint32_t few,
                  uint32_t round)
{
    uint32_t *part = prog_alloc(MIB);
    size_t hundreds = size / CHUNK / HUNDRED * HUNDRED;
    for (size_t at = 0; at < size; at += MIB) {
        prog_read(p->queue, buffer, at, MIB, part);
        for (size_t i = 0; i < MIB / sizeof *part; i++) {
            size_t index = at / sizeof *part + i, chunk = index / WORDS;
            bool rewritten = chunk < hundreds && chunk % period < few;
            if (part[i] != word(index, rewritten ? round : 0))
                prog_fail("word %zu is %x after %u rounds", index, part[i], round);
        }
    }
    free(part);
}

int main(int argc, char **argv)
{
    const size_t size = (size_t)prog_option(argc, argv, "--mib", 64) * MIB;
    const uint32_t percent = (uint32_t)prog_option(argc, argv, "--percent", 1);
    const long rest = prog_option(argc, argv, "--rest", 0), launches = rest ? 1 : LAUNCHES;
    const struct timespec pause = {rest / 1000, rest % 1000 * 1000000};
    const size_t hundreds = size / CHUNK / HUNDRED;
    const bool contiguous = prog_option(argc, argv, "--contiguous", 0) != 0;
    const size_t period = contiguous ? hundreds * HUNDRED : HUNDRED;
    const uint32_t few = (uint32_t)(period / HUNDRED) * percent;
    uint32_t round = 0;
    struct prog p;

    if (percent < 1 || percent > HUNDRED || hundreds == 0 || rest < 0)
        prog_fail("--percent must be 1 to 100, of at least 100 chunks of 64 KiB");
    flat = prog_option(argc, argv, "--flat", 0) != 0;
    prog_open(&p);
    char options[64];
    snprintf(options, sizeof options, "-DWORDS=%d -DFLAT=%d -DPERIOD=%zuul", WORDS, flat, period);
    cl_program program = prog_build(&p, source, options);
    cl_kernel fill = prog_kernel(program, "fill"), rewrite = prog_kernel(program, "rewrite");
    cl_mem buffer = prog_buffer(p.context, CL_MEM_READ_WRITE, size, NULL);
    prog_arg(fill, 0, sizeof buffer, &buffer);
    prog_arg(rewrite, 0, sizeof buffer, &buffer);
    prog_arg(rewrite, 1, sizeof few, &few);
    prog_run(p.queue, fill, size / sizeof(uint32_t));
    OK(clFinish(p.queue));
    puts("ready");
    fflush(stdout);
    do {
        for (long i = 0; i < launches; i++) {
            round++;
            prog_arg(rewrite, 2, sizeof round, &round);
            prog_run(p.queue, rewrite, hundreds * percent * WORDS);
            OK(clFinish(p.queue));
            if (rest)
                (void)nanosleep(&pause, NULL);
        }
    } while (prog_again());
    check(&p, buffer, size, period, few, round);
    puts("every word is right");
    RELEASE(buffer, fill, rewrite, program);
    prog_close(&p);
    return 0;
}
