#include "state/program/program_cut.h"

#include <errno.h>
#include <stdlib.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/work.h"
#include "state/program/program_priv.h"

static _Atomic size_t cut_count;

size_t program_cut_count(void)
{
    return atomic_load(&cut_count);
}

cl_program program_cut_real(const struct program *program, uint8_t residence_index)
{
    return atomic_load_explicit(&program->details->cut[residence_index], memory_order_acquire);
}

bool program_cut_fits(const struct program *program, const char *name, struct residence *residence,
                      uint8_t residence_index, size_t items)
{
    size_t most = 0;
    cl_int error;
    cl_kernel kernel =
        residence->cl->clCreateKernel(program_cut_real(program, residence_index), name, &error);
    if (!kernel)
        return true; /* the launch will fail with the driver's error */
    error = residence->cl->clGetKernelWorkGroupInfo(
        kernel, residence->device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof(most), &most, NULL);
    residence->cl->clReleaseKernel(kernel);
    return error != CL_SUCCESS || items <= device_group_size(residence->device, most);
}

/* cut_refused is the edition plus one; 0 is none. */
static bool program_cut_was_refused(const struct program *program)
{
    return atomic_load(&program->details->cut_refused) == atomic_load(&program->edition) + 1u;
}

const char *program_cut_refusal(struct program *program)
{
    pthread_mutex_lock(&program->lock);
    /* A second program would have a second copy of its variables; and a pinned program is not moved
     * anyway. */
    bool pinned = program->details->pin != PIN_NONE;
    pthread_mutex_unlock(&program->lock);
    if (pinned)
        return "it asks where in the launch a group is, and its program cannot be made twice";
    if (program_cut_was_refused(program))
        return "it asks where in the launch a group is, and its program does not build with "
               "functions of ours that say so";
    return NULL;
}

/* Store @real unless the program was built again since, or another thread was first. Under the
 * program's lock. False: @real is the caller's. */
static bool program_cut_keep(struct program *program, uint8_t residence_index, uint32_t edition,
                             cl_program real)
{
    if (edition != atomic_load(&program->edition) || program_cut_real(program, residence_index))
        return false;
    atomic_store_explicit(&program->details->cut[residence_index], real, memory_order_release);
    atomic_fetch_add(&cut_count, 1);
    return true;
}

/* Build the variant. Outside the gate. */
static cl_int program_cut_build(struct program *program, struct residence *residence,
                                uint32_t *ret_edition, cl_program *ret_real)
{
    struct recipe *CLEANUP(recipe_unref_pointer) variant = NULL;
    pthread_mutex_lock(&program->lock);
    struct recipe *CLEANUP(recipe_unref_pointer) recipe =
        program->recipe ? recipe_ref(program->recipe) : NULL;
    *ret_edition = atomic_load(&program->edition);
    pthread_mutex_unlock(&program->lock);
    int err = recipe ? recipe_prefixed(recipe, cut_source, &variant) : -ENOTSUP;
    if (err)
        return err == -ENOMEM ? CL_OUT_OF_HOST_MEMORY : CL_BUILD_PROGRAM_FAILURE;
    return recipe_follow(variant, residence, ret_real, NULL);
}

/* Make it in the virtual device's residence. False: the virtual device left that residence
 * meanwhile. */
static bool program_cut_make_once(struct program *program, int vdev, cl_int *ret_error)
{
    struct context *context = program->context;
    struct residence *residence = NULL;
    cl_program real;
    uint32_t edition;
    gate_enter();
    uint8_t residence_index = atomic_load(&context->residence_index[vdev]);
    if (residence_index != RESIDENCE_NONE && !program_cut_real(program, residence_index)) {
        residence = context->at[residence_index];
        residence_ref(residence);
    }
    gate_leave();
    *ret_error = CL_SUCCESS;
    if (!residence)
        return true;
    *ret_error = program_cut_build(program, residence, &edition, &real);
    if (*ret_error != CL_SUCCESS) {
        if (*ret_error == CL_BUILD_PROGRAM_FAILURE || *ret_error == CL_LINK_PROGRAM_FAILURE ||
            *ret_error == CL_COMPILE_PROGRAM_FAILURE)
            atomic_store(&program->details->cut_refused, edition + 1u);
        residence_unref(residence);
        return true;
    }
    gate_enter();
    pthread_mutex_lock(&program->lock);
    bool there = atomic_load(&context->residence_index[vdev]) == residence_index &&
                 context->at[residence_index] == residence;
    bool kept = there && program_cut_keep(program, residence_index, edition, real);
    pthread_mutex_unlock(&program->lock);
    gate_leave();
    if (!kept)
        residence_release(residence->cl, OBJECT_PROGRAM, real);
    residence_unref(residence);
    return there;
}

cl_int program_cut_make(struct program *program, int vdev)
{
    cl_int error;
    while (!program_cut_make_once(program, vdev, &error))
        ;
    return error;
}

struct cutting {
    struct program *program; /* held */
    int vdev;
};

static void program_cut_ends(struct program *program)
{
    pthread_mutex_lock(&program->lock);
    atomic_store(&program->details->cutting, false);
    pthread_cond_broadcast(&program->details->built);
    pthread_mutex_unlock(&program->lock);
}

static void *program_cut_thread(void *data)
{
    struct cutting *cutting = data;
    struct program *program = cutting->program;
    work_build_begin(false);
    cl_int error = program_cut_make(program, cutting->vdev);
    if (error == CL_SUCCESS)
        log_info("long launches of a program's kernels that ask for their place are given in "
                 "pieces from now on");
    else
        log_info("kernels of a program that ask for their place are not given in pieces: it does "
                 "not build with the functions for that (error %d)",
                 error);
    program_cut_ends(program);
    object_unhold(
        program); /* this may be the last hold, and call the driver to release the program */
    free(cutting);
    work_build_end(false);
    return NULL;
}

void program_cut_start(struct program *program, int vdev)
{
    if (program_cut_was_refused(program) || atomic_exchange(&program->details->cutting, true))
        return;
    struct cutting *cutting = malloc(sizeof(*cutting));
    if (cutting) {
        *cutting = (struct cutting){program, vdev};
        object_hold(program);
        work_build_announce();
        if (thread_start("reseat-build", 0, program_cut_thread, cutting, NULL) == 0)
            return;
        work_build_withdraw();
        object_unhold(program);
    }
    free(cutting);
    program_cut_ends(program);
}

uint64_t program_cut_expected_ns(const struct program *program)
{
    return atomic_load(&program->details->build_ns);
}

void program_cut_await(struct program *program, uint64_t deadline_ns)
{
    int error = 0;
    pthread_mutex_lock(&program->lock);
    while (atomic_load(&program->details->cutting) && error == 0)
        error = clock_wait(&program->details->built, &program->lock, deadline_ns);
    pthread_mutex_unlock(&program->lock);
}

static _Atomic uint32_t *program_cut_uses(struct program *program, bool recorded)
{
    return recorded ? &program->details->cut_recorded : &program->details->cut_launches;
}

void program_cut_begin(struct program *program, bool recorded)
{
    atomic_fetch_add(program_cut_uses(program, recorded), 1);
}

void program_cut_end(struct program *program, bool recorded)
{
    atomic_fetch_sub(program_cut_uses(program, recorded), 1);
}

static bool program_cut_is_made(const struct program *program)
{
    bool made = false;
    for (uint8_t residence_index = 0; residence_index < program->context->residences;
         residence_index++)
        made = made || program_cut_real(program, residence_index);
    return made;
}

cl_int program_cut_prepare(struct program *program, struct residence *residence,
                           uint8_t residence_index, bool recovers)
{
    bool needed = atomic_load(&program->details->cut_launches) != 0 ||
                  (recovers && atomic_load(&program->details->cut_recorded) != 0);
    cl_program real;
    uint32_t edition;
    /* With the gate closed the program is stopped: do not make it wait for this build. */
    if (the_thread.gate.owner || program_cut_real(program, residence_index) ||
        (!needed && !program_cut_is_made(program)))
        return CL_SUCCESS;
    cl_int error = program_cut_build(program, residence, &edition, &real);
    if (error != CL_SUCCESS && needed)
        log_info("a launch is under way in pieces that cannot go on on %s: their program does not "
                 "build there (error %d)",
                 device_name(residence->device), error);
    /* The launch under way will end, and then the move can be made: a shortage, not a refusal. */
    if (error != CL_SUCCESS)
        return needed ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
    pthread_mutex_lock(&program->lock);
    bool kept = program_cut_keep(program, residence_index, edition, real);
    pthread_mutex_unlock(&program->lock);
    if (!kept)
        residence_release(residence->cl, OBJECT_PROGRAM, real);
    return CL_SUCCESS;
}

static cl_program program_cut_take(struct program *program, uint8_t residence_index)
{
    pthread_mutex_lock(&program->lock);
    cl_program real = atomic_exchange(&program->details->cut[residence_index], NULL);
    pthread_mutex_unlock(&program->lock);
    if (real)
        atomic_fetch_sub(&cut_count, 1);
    return real;
}

void program_cut_vacate(struct program *program, struct residence *residence,
                        uint8_t residence_index)
{
    residence_retire(residence, OBJECT_PROGRAM, program_cut_take(program, residence_index), NULL);
}

void program_cut_drop(struct program *program)
{
    for (uint8_t residence_index = 0; residence_index < program->context->residences;
         residence_index++) {
        cl_program real = program_cut_take(program, residence_index);
        if (real)
            program->context->at[residence_index]->cl->clReleaseProgram(real);
    }
}
