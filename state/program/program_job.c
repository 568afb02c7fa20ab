#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/work.h"
#include "state/object/lost.h"
#include "state/object/usage.h"
#include "state/program/kernel.h"
#include "state/program/program_cut.h"
#include "state/program/program_priv.h"

/*
 * Builds, compilations and links from their beginning to their end: one at a time for a program, in
 * the thread that asked for it or, where the program wants to be called back, in one of ours.
 */

void program_settle(struct program *program)
{
    pthread_mutex_lock(&program->lock);
    while (program->details->building)
        (void)clock_wait(&program->details->built, &program->lock, 0);
    pthread_mutex_unlock(&program->lock);
}

/* Copies of the names, and a hold on each part. */
static cl_int program_job_copy_parts(struct program_job *job, const struct program_list *parts)
{
    job->parts.programs = calloc(parts->count ? parts->count : 1, sizeof(struct program *));
    job->parts.names = calloc(parts->count ? parts->count : 1, sizeof(char *));
    if (!job->parts.programs || !job->parts.names)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < parts->count; i++) {
        if (parts->names && !(job->parts.names[i] = strdup(parts->names[i])))
            return CL_OUT_OF_HOST_MEMORY;
        object_hold(parts->programs[i]);
        job->parts.programs[job->parts.count++] = parts->programs[i];
    }
    return CL_SUCCESS;
}

cl_int program_job_create(enum program_work work, struct program *program, uint32_t vdevs,
                          const char *options, const struct program_list *parts,
                          struct program_notify notify, struct program_job **ret_job)
{
    struct program_job *job = calloc(1, sizeof(*job));
    if (!job)
        return CL_OUT_OF_HOST_MEMORY;
    job->work = work;
    job->program = program;
    object_hold(program);
    job->vdevs = vdevs;
    job->notify = notify;
    job->options = strdup(options ? options : "");
    cl_int error = job->options ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS && parts)
        error = program_job_copy_parts(job, parts);
    if (error != CL_SUCCESS) {
        program_job_free(job);
        return error;
    }
    for (cl_uint i = 0; i < job->parts.count; i++)
        program_settle(job->parts.programs[i]);
    *ret_job = job;
    return CL_SUCCESS;
}

void program_job_free(struct program_job *job)
{
    for (cl_uint i = 0; i < job->parts.count; i++) {
        object_unhold(job->parts.programs[i]);
        free((char *)(uintptr_t)job->parts.names[i]);
    }
    free(job->parts.programs);
    free(job->parts.names);
    recipe_unref(job->recipe);
    object_unhold(job->program);
    free(job->options);
    free(job);
}

/* 5.8.3: kernels with a reference of the program's, and deferred launches. `kernels` alone also
 * counts kernels that only a mover holds. */
static bool program_job_has_kernels(struct program *program)
{
    bool found = atomic_load(&program->held) != 0;
    uintptr_t cursor = 0;
    struct kernel *kernel;
    if (atomic_load(&program->kernels) == 0)
        return found;
    while (!found && (kernel = object_next(OBJECT_KERNEL, &cursor))) {
        found = kernel->program == program && object_refs(kernel) > 0;
        object_unhold(kernel);
    }
    return found;
}

void program_job_unclaim(struct program_job *job)
{
    struct program *program = job->program;
    pthread_mutex_lock(&program->lock);
    program->details->building = false;
    pthread_cond_broadcast(&program->details->built);
    pthread_mutex_unlock(&program->lock);
}

cl_int program_job_claim(struct program_job *job)
{
    struct program *program = job->program;
    pthread_mutex_lock(&program->lock);
    bool free_now = !program->details->building;
    program->details->building = true;
    pthread_mutex_unlock(&program->lock);
    if (!free_now)
        return CL_INVALID_OPERATION;
    if (!program_job_has_kernels(program))
        return CL_SUCCESS;
    program_job_unclaim(job);
    return CL_INVALID_OPERATION;
}

static void program_job_in_progress(struct program_job *job)
{
    struct program *program = job->program;
    pthread_mutex_lock(&program->lock);
    for (unsigned i = 0; i < program->context->vdev_count; i++)
        if (job->vdevs & (1u << i))
            program->details->vdev[i].status = CL_BUILD_IN_PROGRESS;
    pthread_mutex_unlock(&program->lock);
}

static cl_int program_job_work(struct program_job *job)
{
    bool (*once)(struct program_job * job, cl_int * ret_error) =
        job->work == PROGRAM_LINK ? program_link_once : program_build_once;
    struct retry retry = {job->program->context->vdevs, job->program->context->vdev_count, 0};
    cl_int error;
    while (!once(job, &error)) {
        log_info("a program was moved while it was built: once more on its new device");
        retry_again(&retry);
    }
    retry_end(&retry);
    if (error == CL_SUCCESS)
        usage_note_recipe(job->recipe);
    program_job_unclaim(job);
    return error;
}

/* The job may have the last hold of the program. Its handle must be valid in the callback all the
 * same. */
static void program_job_tell(const struct program_job *job)
{
    job->notify.call((cl_program)object_lend(job->program), job->notify.data);
}

/* Runs also when the callback ends its thread. The last hold would call the driver; at the end of
 * the process, which does not wait for callbacks, nothing is released. */
static void program_job_ends(void *job)
{
    if (work_begin())
        program_job_free(job);
    work_end();
}

/* True when all compilers run in other processes. */
static bool program_job_is_elsewhere(const struct program_job *job)
{
    bool elsewhere = true;
    const struct context *context = job->program->context;
    for (cl_uint i = 0; i < context->vdev_count; i++) {
        const struct device *device = atomic_load(&context->vdevs[i]->device);
        elsewhere = elsewhere && device && device->between;
    }
    return elsewhere;
}

static void *program_job_thread(void *data)
{
    struct program_job *job = data;
    bool elsewhere = program_job_is_elsewhere(job);
    work_build_begin(elsewhere);
    program_job_work(job);
    work_build_end(elsewhere);
    pthread_cleanup_push(program_job_ends, job);
    program_job_tell(job);
    pthread_cleanup_pop(1);
    return NULL;
}

static bool program_job_start_thread(struct program_job *job)
{
    work_build_announce();
    bool started = thread_start("reseat-build", 0, program_job_thread, job, NULL) == 0;
    if (!started)
        work_build_withdraw();
    return started;
}

cl_int program_job_run(struct program_job *job, bool *ret_visible)
{
    program_job_in_progress(job);
    *ret_visible = job->visible;
    if (job->notify.call && program_job_start_thread(job))
        return CL_SUCCESS;
    int before = cancel_hold();
    cl_int error = program_job_work(job);
    cancel_allow(before);
    *ret_visible = job->visible;
    if (job->notify.call && (error == CL_SUCCESS || error == CL_BUILD_PROGRAM_FAILURE ||
                             error == CL_COMPILE_PROGRAM_FAILURE || job->visible))
        program_job_tell(job);
    program_job_free(job);
    return error;
}

cl_int program_job_recipes(const struct program_job *job, bool bases, struct recipe ***ret_recipes)
{
    const struct program_list *list = &job->parts;
    struct recipe **recipes = calloc(list->count ? list->count : 1, sizeof(struct recipe *));
    if (!recipes)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < list->count; i++) {
        struct program *program = list->programs[i];
        pthread_mutex_lock(&program->lock);
        struct recipe *recipe = bases ? program->details->base : program->recipe;
        recipes[i] = recipe ? recipe_ref(recipe) : NULL;
        pthread_mutex_unlock(&program->lock);
        if (!recipes[i]) {
            program_recipes_free(recipes, i);
            return CL_INVALID_PROGRAM;
        }
    }
    *ret_recipes = recipes;
    return CL_SUCCESS;
}

void program_recipes_free(struct recipe **recipes, cl_uint count)
{
    for (cl_uint i = 0; i < count; i++)
        recipe_unref(recipes[i]);
    free(recipes);
}

cl_program *program_job_reals(const struct program_job *job, const struct program_sites *sites)
{
    const struct program_list *list = &job->parts;
    cl_program *reals = calloc((size_t)list->count * sites->count + 1, sizeof(cl_program));
    for (unsigned s = 0; reals && s < sites->count; s++)
        for (cl_uint i = 0; i < list->count; i++)
            reals[s * list->count + i] = list->programs[i]->real[sites->site[s].residence_index];
    return reals;
}

static void program_job_replace_string(char **string, const char *value)
{
    char *copy = value ? strdup(value) : NULL;
    free(*string);
    *string = copy;
}

static bool program_job_succeeded(const struct program_outcome *outcome)
{
    return outcome->error == CL_SUCCESS && outcome->status == CL_BUILD_SUCCESS;
}

/* One site's outcome for each of its virtual devices that took part. */
static void program_job_publish_site(struct program_job *job, const struct program_site *site,
                                     struct program_outcome *outcome)
{
    struct program_details *details = job->program->details;
    bool done = program_job_succeeded(outcome);
    for (unsigned i = 0; i < job->program->context->vdev_count; i++) {
        struct program_vdev *vdev = &details->vdev[i];
        if (!(site->vdevs & (1u << i)))
            continue;
        vdev->status = outcome->status;
        vdev->type = outcome->type;
        vdev->globals = outcome->globals;
        program_job_replace_string(&vdev->log, outcome->log);
        program_job_replace_string(&vdev->options, job->options);
        if (done || outcome->status != CL_BUILD_SUCCESS) {
            recipe_unref(vdev->recipe);
            vdev->recipe = done ? recipe_ref(job->recipe) : NULL;
        }
    }
    /* Drivers order kernel names differently: the order that the program was told stays. */
    if (done && outcome->kernel_names &&
        (!details->kernel_names ||
         !program_names_same(details->kernel_names, outcome->kernel_names))) {
        free(details->kernel_names);
        details->kernel_names = outcome->kernel_names;
        details->kernel_count = outcome->kernel_count;
        outcome->kernel_names = NULL;
    }
}

void program_publish(struct program_job *job, const struct program_sites *sites,
                     struct program_outcome *outcomes)
{
    struct program *program = job->program;
    struct program_details *details = program->details;
    bool done = false, lost = true;
    pthread_mutex_lock(&program->lock);
    for (unsigned s = 0; s < sites->count; s++) {
        done = done || program_job_succeeded(&outcomes[s]);
        /* An error that left an earlier build intact (options that the driver does not know). */
        lost = lost && outcomes[s].status != CL_BUILD_SUCCESS;
        program_job_publish_site(job, &sites->site[s], &outcomes[s]);
        program_take_facts(details, &outcomes[s]);
    }
    if (done || lost) {
        struct recipe *next = done ? job->recipe : details->base;
        recipe_unref(program->recipe);
        program->recipe = next ? recipe_ref(next) : NULL;
    }
    atomic_store(&details->build_ns, job->took_ns);
    enum pin_kind before = details->pin;
    details->pin = program_find_pin(program);
    pin_take(&program->context->pins, details->pin);
    pin_drop(&program->context->pins, before);
    uint32_t executable = 0;
    for (unsigned i = 0; i < program->context->vdev_count; i++)
        if (details->vdev[i].status == CL_BUILD_SUCCESS &&
            details->vdev[i].type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
            executable |= 1u << i;
    atomic_store(&program->executable, executable);
    for (unsigned s = 0; s < sites->count; s++) {
        if (job->replaced[s]) {
            cl_program old = program->real[sites->site[s].residence_index];
            program->real[sites->site[s].residence_index] = job->replaced[s];
            job->replaced[s] = old;
        }
    }
    /* The sites have the new build. Real programs elsewhere are of an older edition: those that a
     * mover prepares, and those of other virtual devices. */
    uint32_t edition = atomic_load(&program->edition) + 1;
    for (unsigned s = 0; s < sites->count; s++)
        atomic_store(&program->made[sites->site[s].residence_index], edition);
    atomic_store(&program->edition, edition);
    pthread_mutex_unlock(&program->lock);
    program_cut_drop(program);
}

bool program_sites_outlive(const struct program_sites *sites,
                           const struct program_outcome *outcomes)
{
    bool lost = false;
    for (unsigned s = 0; !lost && s < sites->count; s++) {
        const struct program_outcome *outcome = &outcomes[s];
        bool doubtful = outcome->doubtful || outcome->status != CL_BUILD_SUCCESS;
        lost = residence_outlives(sites->site[s].residence, outcome->error != CL_SUCCESS
                                                                ? outcome->error
                                                            : doubtful ? CL_BUILD_PROGRAM_FAILURE
                                                                       : CL_SUCCESS);
    }
    return lost;
}

void program_job_release(struct program_job *job, struct program_sites *sites,
                         struct program_outcome *outcomes)
{
    for (unsigned s = 0; s < sites->count; s++) {
        residence_release(sites->site[s].residence->cl, OBJECT_PROGRAM, job->replaced[s]);
        job->replaced[s] = NULL;
        program_outcome_finish(&outcomes[s]);
    }
    program_sites_drop(sites);
}

/* In a child of a fork the builds of other threads have failed: those threads do not exist. */
static void program_job_in_child(void)
{
    uintptr_t cursor = 0;
    struct program *program;
    for (; (program = object_next(OBJECT_PROGRAM, &cursor)); object_unhold(program)) {
        struct program_details *details = program->details;
        pthread_mutex_init(&program->lock, NULL);
        pthread_cond_init(&details->built, NULL);
        for (unsigned i = 0; details->building && i < program->context->vdev_count; i++)
            if (details->vdev[i].status == CL_BUILD_IN_PROGRESS)
                details->vdev[i].status = CL_BUILD_ERROR;
        details->building = false;
        atomic_store(&details->cutting, false);
    }
}

FORK_PART = {.rank = FORK_TABLE, .in_child = program_job_in_child};
