/**
 * What it costs to give long launches in pieces, and how long a move waits for them.
 *
 *   bench-slices [--kinds KIND,KIND...] [--ms N] [--pairs N] [--slice MS] [--items N] [--mib N]
 *                [--runs N] [--from DEVICE] [--to DEVICE]
 *
 * longlaunch launches one kernel whole and in pieces, in turn, in one process: the ratio of each
 * pair, their median, least and most. The same with --slice 0, where both are whole: by so much
 * pairs differ anyway; with --pairs 0 neither. Then moves are asked for, --runs times, in the
 * middle of such launches: to --to, made ready before, and back; without one, out of the device and
 * in again. Every word of the results is checked. Needs longlaunch beside it or in $PROGRAMS.
 */
#include "bench.h"
#include "prog.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_PAIRS = 100,
    MAX_RUNS = 32,
    MAX_DEVICES = 16,
    MAX_ARGS = 32,
    MAX_KINDS = 8,
    NUMBER_BYTES = 32,
    PERCENT = 100,
    MS = 1000
};

static const char name[] = "slices";

struct plan {
    const char *kind;
    const char *from, *to; /* NULL: out, and in again */
    const char *slice, *ms, *items, *mib;
    int pairs, runs;
    char until[PATH_MAX], log[PATH_MAX + NUMBER_BYTES];
};

/** longlaunch under reseat, with @more (NULL-terminated); its output's end. */
static pid_t start(const struct plan *plan, const char *slice, const char *const more[],
                   int *ret_out)
{
    const char *const argv[] = {
        bench_reseat(), "run",     "--name",   name,      "--device",
        plan->from,     "--slice", slice,      "--",      bench_program("longlaunch"),
        "--times",      "--kind",  plan->kind, "--items", plan->items,
        "--mib",        plan->mib, NULL};
    const char *all[MAX_ARGS] = {NULL};
    size_t n = 0;

    for (const char *const *arg = argv; *arg; arg++)
        all[n++] = *arg;
    while (*more && n + 1 < MAX_ARGS)
        all[n++] = *more++;
    return bench_start(NULL, NULL, (char *const *)all, ret_out);
}

/** Why the library did not cut the launches of @kernel, or NULL. Static storage. */
static const char *not_cut(const struct plan *plan, const char *kernel)
{
    static char line[PATH_MAX];
    char says[NAME_MAX];
    FILE *log = fopen(plan->log, "r");
    const char *why = NULL;

    snprintf(says, sizeof says, "launches of kernel %s are not given in pieces: ", kernel);
    while (log && !why && fgets(line, sizeof line, log)) {
        line[strcspn(line, "\n")] = '\0';
        why = strstr(line, says);
    }
    if (log)
        fclose(log);
    return why ? why + strlen(says) : NULL;
}

static const char *const forms[] = {"whole", "pieces"};

struct turns {
    double ratios[MAX_PAIRS], whole[MAX_PAIRS];
    int loops;
};

static void take_turns(const struct plan *plan, const char *slice, struct turns *ret_turns)
{
    char pairs[NUMBER_BYTES];
    const char *const more[] = {"--ms", plan->ms, "--pairs", pairs, NULL};
    double took[2];
    int out;

    snprintf(pairs, sizeof pairs, "%d", plan->pairs);
    pid_t pid = start(plan, slice, more, &out);
    ret_turns->loops = (int)bench_await_line(out, "loops ");
    for (int i = 0; i < plan->pairs; i++) {
        for (int k = 0; k < 2; k++)
            took[(i + k) % 2] = bench_await_line(out, forms[(i + k) % 2]);
        ret_turns->whole[i] = took[0];
        ret_turns->ratios[i] = took[1] / took[0];
    }
    free(bench_collect(pid, out));
}

static void print_turns(const struct plan *plan, const char *what, struct turns *turns)
{
    size_t n = (size_t)plan->pairs;
    double whole = bench_median(turns->whole, n), middle = bench_median(turns->ratios, n);

    printf("%-8s %-16s %9.4f %9.4f %9.4f %9.4f %+8.2f %%\n", plan->kind, what, whole, middle,
           turns->ratios[0], turns->ratios[n - 1], PERCENT * (middle - 1));
}

/** Steady cost; the loops of a launch, 0 where it is not cut. */
static int steady(const struct plan *plan)
{
    struct turns turns;
    char what[2 * NUMBER_BYTES];

    unlink(plan->log);
    take_turns(plan, plan->slice, &turns);
    if (plan->pairs == 0)
        return turns.loops;
    const char *why = not_cut(plan, plan->kind);
    snprintf(what, sizeof what, "pieces of %s ms", plan->slice);
    print_turns(plan, why ? "is not cut" : what, &turns);
    if (why) {
        printf("%-8s %s\n", plan->kind, why);
        return 0;
    }
    int loops = turns.loops;
    take_turns(plan, "0", &turns);
    print_turns(plan, "both whole", &turns);
    return loops;
}

/** Wait for a launch that began just now, then until a part of it is done. */
static void await_middle(const struct plan *plan, int out)
{
    double begun, launch = (double)atol(plan->ms) / MS;

    do {
        begun = bench_await_line(out, "begun ");
    } while (prog_now() > begun + launch / 4);
    while (prog_now() < begun + launch / 2)
        usleep(MS);
}

static struct bench_move ask(const struct plan *plan, int turn)
{
    if (plan->to)
        return bench_move(name, turn % 2 ? plan->from : plan->to);
    return turn % 2 ? bench_resume(name, plan->from) : bench_suspend(name);
}

/** Moves in the middle of launches of @form, of as many @loops. */
static void moved(const struct plan *plan, int form, int loops)
{
    char loops_text[NUMBER_BYTES];
    const char *const more[] = {"--only", forms[form], "--loops", loops_text, NULL};
    double total[2][MAX_RUNS], stopped[2][MAX_RUNS];
    int out;

    snprintf(loops_text, sizeof loops_text, "%d", loops);
    unlink(plan->until);
    setenv("TEST_UNTIL", plan->until, 1);
    pid_t pid = start(plan, plan->slice, more, &out);
    unsetenv("TEST_UNTIL");
    bench_await_line(out, "ready");
    for (int turn = 0; turn < 2 * plan->runs; turn++) {
        if (plan->to)
            bench_prewarm(name, turn % 2 ? plan->from : plan->to);
        if (plan->to || turn % 2 == 0)
            await_middle(plan, out);
        struct bench_move move = ask(plan, turn);
        total[turn % 2][turn / 2] = move.total_s;
        stopped[turn % 2][turn / 2] = move.downtime_s;
    }
    close(open(plan->until, O_CREAT | O_WRONLY, S_IRUSR | S_IWUSR));
    free(bench_collect(pid, out));
    for (int way = 0; way < 2; way++) {
        size_t n = (size_t)plan->runs;
        double middle = bench_median(total[way], n);
        printf("%-8s %-8s %-16s %9.4f %9.4f %9.4f   stopped %.4f\n", plan->kind, forms[form],
               plan->to ? way ? plan->from : plan->to
               : way    ? "in again"
                        : "out",
               middle, total[way][0], total[way][n - 1], bench_median(stopped[way], n));
    }
}

int main(int argc, char **argv)
{
    const char *devices[MAX_DEVICES], *kinds[MAX_KINDS] = {NULL};
    char *list = strdup(prog_option_text(argc, argv, "--kinds", "compute,memory"));
    const char *folder = getenv("TMPDIR") ?: "/tmp";
    char log_to[2 * PATH_MAX];
    int loops[MAX_KINDS], n = 0;
    struct plan plan = {
        .slice = prog_option_text(argc, argv, "--slice", "10"),
        .ms = prog_option_text(argc, argv, "--ms", "1000"),
        .items = prog_option_text(argc, argv, "--items", "4325376"),
        .mib = prog_option_text(argc, argv, "--mib", "64"),
        .from = prog_option_text(argc, argv, "--from", NULL),
        .to = prog_option_text(argc, argv, "--to", NULL),
        .pairs = (int)prog_option(argc, argv, "--pairs", 10),
        .runs = (int)prog_option(argc, argv, "--runs", 3),
    };

    if (plan.pairs < 0 || plan.pairs > MAX_PAIRS || plan.runs < 0 || plan.runs > MAX_RUNS)
        bench_fail("--pairs must be 0 to %d, --runs 0 to %d", MAX_PAIRS, MAX_RUNS);
    if (bench_devices(devices, MAX_DEVICES) == 0)
        bench_fail("there is no device");
    plan.from = plan.from ? plan.from : devices[0];
    snprintf(plan.until, sizeof plan.until, "%s/reseat-bench-%d", folder, (int)getpid());
    snprintf(plan.log, sizeof plan.log, "%s.log", plan.until);
    snprintf(log_to, sizeof log_to, "info:%s", plan.log);
    setenv("RESEAT_LOG", log_to, 1);
    printf("%s, %s items, about %s ms a launch\n%-8s %-16s %9s %9s %9s %9s %10s\n", plan.from,
           plan.items, plan.ms, "kernel", "beside whole", "whole s", "ratio", "least", "most",
           "cost");
    for (char *kind = strtok(list, ","); kind && n < MAX_KINDS; kind = strtok(NULL, ",")) {
        plan.kind = kinds[n] = kind;
        loops[n++] = steady(&plan);
    }
    if (plan.runs)
        printf("%-8s %-8s %-16s %9s %9s %9s\n", "kernel", "launched", "moved", "in all s", "least",
               "most");
    for (int i = 0; i < n && plan.runs; i++) {
        plan.kind = kinds[i];
        for (int form = 0; form < 2 && loops[i]; form++)
            moved(&plan, form, loops[i]);
    }
    unlink(plan.until);
    unlink(plan.log);
    free(list);
    return 0;
}
