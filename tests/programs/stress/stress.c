/**
 * Many threads use all of OpenCL at once and compare every byte they read with
 * what the host computes. Integer arithmetic only: the checksum at the end is
 * the same on every device.
 *
 *   stress [--threads N] [--rounds N] [--seconds S] [--seed N] [--elements N]
 *          [--features NAME,NAME…|all] [--without NAME,NAME…] [--list]
 */
#include "stress.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 64, WORD_GROUP = 64, SEED_STRIDE = 1000003 };

struct options {
    unsigned threads, rounds, elements;
    double seconds;
    uint64_t seed;
    const char *features, *without;
};

struct job {
    pthread_t thread;
    struct worker worker;
    const struct options *options;
    uint64_t pass_sum;
    unsigned long rounds_done;
};

const struct feature stress_features[] = {
    {"kernels", stress_kernels},
    {"structs", stress_structs},
    {"programs", stress_programs},
    {"link", stress_link},
    {"binaries", stress_binaries},
    {"clone", stress_clone},
    {"copies", stress_copies},
    {"rects", stress_rects},
    {"subbuffers", stress_subbuffers},
    {"maps", stress_maps},
    {"heldmap", stress_heldmap},
    {"hostptr", stress_hostptr},
    {"images", stress_images},
    {"samplers", stress_samplers},
    {"bufferimages", stress_bufferimages},
    {"userevents", stress_userevents},
    {"waits", stress_waits},
    {"callbacks", stress_callbacks},
    {"profiling", stress_profiling},
    {"inflight", stress_inflight},
    {"queries", stress_queries},
    {NULL, NULL},
};

static bool wanted(const struct options *o, const struct feature *f)
{
    if (prog_listed(o->without, f->name))
        return false;
    return strcmp(o->features, "all") == 0 || prog_listed(o->features, f->name);
}

static void worker_init(struct worker *w, const struct prog *p, unsigned id, unsigned elements)
{
    *w = (struct worker){.prog = p, .id = id, .elements = elements};
    w->queue = prog_queue(p, CL_QUEUE_PROFILING_ENABLE);
    w->other = prog_queue_out_of_order(p);
    w->program = prog_build(p, stress_source, "");
    w->scramble = prog_kernel(w->program, "scramble");
}

static void worker_finish(struct worker *w)
{
    OK(clFinish(w->queue));
    OK(clFinish(w->other));
    RELEASE(w->scramble, w->program, w->queue, w->other);
}

static void one_round(struct job *j, unsigned round)
{
    const struct options *o = j->options;

    for (unsigned i = 0; stress_features[i].name; i++) {
        if (!wanted(o, &stress_features[i]))
            continue;
        j->worker.rng = rng_seed(o->seed + round * (uint64_t)SEED_STRIDE * MAX_THREADS +
                                 j->worker.id * (uint64_t)SEED_STRIDE + i);
        if (getenv("TEST_TRACE"))
            fprintf(stderr, "thread %u round %u %s\n", j->worker.id, round,
                    stress_features[i].name);
        stress_features[i].round(&j->worker);
    }
    j->rounds_done++;
}

static void *work(void *arg)
{
    struct job *j = arg;
    const struct options *o = j->options;
    double end = prog_now() + o->seconds;
    bool first = true;

    do {
        j->worker.sum = 0;
        for (unsigned round = 0; round < o->rounds; round++)
            one_round(j, round);
        if (j->worker.held)
            stress_heldmap(&j->worker);
        if (!first && j->worker.sum != j->pass_sum)
            prog_fail("thread %u: a later pass gave another checksum", j->worker.id);
        j->pass_sum = j->worker.sum;
        first = false;
    } while (prog_now() < end || prog_again());
    return NULL;
}

static unsigned checked(int argc, char **argv, const char *name, long otherwise, long most)
{
    long value = prog_option(argc, argv, name, otherwise);

    if (value < 1 || value > most)
        prog_fail("%s must be 1 to %ld", name, most);
    return (unsigned)value;
}

static void list_features(void)
{
    for (const struct feature *f = stress_features; f->name; f++)
        puts(f->name);
}

int main(int argc, char **argv)
{
    struct options o = {
        .threads = checked(argc, argv, "--threads", 2, MAX_THREADS),
        .rounds = checked(argc, argv, "--rounds", 4, 1 << 20),
        .elements = checked(argc, argv, "--elements", 4096, 1 << 26) / WORD_GROUP * WORD_GROUP,
        .seconds = (double)prog_option(argc, argv, "--seconds", 0),
        .seed = (uint64_t)prog_option(argc, argv, "--seed", 1),
        .features = prog_option_text(argc, argv, "--features", "all"),
        .without = prog_option_text(argc, argv, "--without", ""),
    };
    struct prog p;
    uint64_t sum = 0;

    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        list_features();
        return 0;
    }
    if (o.elements < WORD_GROUP)
        o.elements = WORD_GROUP;
    prog_open(&p);
    struct job *jobs = prog_alloc(o.threads * sizeof *jobs);
    memset(jobs, 0, o.threads * sizeof *jobs);
    for (unsigned i = 0; i < o.threads; i++) {
        jobs[i].options = &o;
        worker_init(&jobs[i].worker, &p, i, o.elements);
    }
    for (unsigned i = 0; i < o.threads; i++)
        REQUIRE(pthread_create(&jobs[i].thread, NULL, work, &jobs[i]) == 0);
    unsigned long rounds = 0;
    for (unsigned i = 0; i < o.threads; i++) {
        REQUIRE(pthread_join(jobs[i].thread, NULL) == 0);
        sum_word(&sum, jobs[i].pass_sum);
        rounds += jobs[i].rounds_done;
        worker_finish(&jobs[i].worker);
    }
    free(jobs);
    prog_close(&p);
    fprintf(stderr, "stress: %lu rounds\n", rounds);
    printf("stress checksum %016lx\n", (unsigned long)sum);
    return 0;
}
