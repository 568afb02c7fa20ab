#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/program/program_priv.h"
#include "state/recipe/container.h"

void program_flush_output(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (!recipes_print() || ftrylockfile(stdout) != 0)
        return;
    if (poll(&out, 1, 0) == 1 && out.revents == POLLOUT)
        (void)fflush_unlocked(stdout);
    funlockfile(stdout);
}

const struct recipe *program_base(const struct program *program)
{
    return program->details->base;
}

uint32_t program_vdevs(const struct program *program)
{
    return program->details->vdevs;
}

void program_vdev_state(struct program *program, cl_uint vdev, struct program_state *ret_state)
{
    const struct program_vdev *at = &program->details->vdev[vdev];
    pthread_mutex_lock(&program->lock);
    *ret_state = (struct program_state){at->status, at->type, at->globals};
    pthread_mutex_unlock(&program->lock);
}

char *program_text(struct program *program, cl_uint vdev, enum program_text which)
{
    const struct program_details *details = program->details;
    pthread_mutex_lock(&program->lock);
    const char *text = which == PROGRAM_TEXT_OPTIONS ? details->vdev[vdev].options
                       : which == PROGRAM_TEXT_LOG   ? details->vdev[vdev].log
                                                     : details->kernel_names;
    char *copy = strdup(text ? text : "");
    pthread_mutex_unlock(&program->lock);
    return copy;
}

size_t program_kernel_count(struct program *program)
{
    pthread_mutex_lock(&program->lock);
    size_t count = program->details->kernel_count;
    pthread_mutex_unlock(&program->lock);
    return count;
}

/* What was built for a virtual device, or loaded from a container and never built since. Under the
 * lock. */
static struct recipe *program_info_vdev_recipe(const struct program_details *details, cl_uint vdev)
{
    const struct program_vdev *at = &details->vdev[vdev];
    if (!(details->vdevs & (1u << vdev)))
        return NULL;
    if (at->recipe)
        return at->status == CL_BUILD_SUCCESS ? at->recipe : NULL;
    return details->origin == PROGRAM_FROM_BINARY && at->status == CL_BUILD_NONE ? details->base
                                                                                 : NULL;
}

bool program_tells_parameters(struct program *program)
{
    bool tells = false;
    pthread_mutex_lock(&program->lock);
    for (unsigned i = 0; i < program->context->vdev_count && !tells; i++) {
        const struct recipe *recipe = program_info_vdev_recipe(program->details, i);
        tells = recipe && recipe_tells_parameters(recipe);
    }
    pthread_mutex_unlock(&program->lock);
    return tells;
}

int program_container(struct program *program, cl_uint vdev, unsigned char **ret_bytes,
                      size_t *ret_size)
{
    struct program_details *details = program->details;
    unsigned char *copy = NULL;
    int err = 0;
    pthread_mutex_lock(&program->lock);
    struct recipe *recipe = program_info_vdev_recipe(details, vdev);
    size_t size = 0;
    if (recipe && recipe != details->contained) {
        unsigned char *bytes;
        err = container_write(recipe, &bytes, &size);
        if (!err) {
            free(details->container);
            recipe_unref(details->contained);
            details->container = bytes;
            details->container_size = size;
            details->contained = recipe_ref(recipe);
        }
    }
    size = recipe && !err ? details->container_size : 0;
    if (size && ret_bytes) {
        copy = malloc(size);
        if (copy)
            memcpy(copy, details->container, size);
        else
            err = -ENOMEM;
    }
    pthread_mutex_unlock(&program->lock);
    if (err)
        return err;
    if (ret_bytes)
        *ret_bytes = copy;
    *ret_size = size;
    return 0;
}

void program_keep_binary(struct program *program, cl_uint vdev)
{
    const struct context *context = program->context;
    struct residence *residence = NULL;
    cl_program real = NULL;
    if (!library_is_on(&the_library))
        return;
    pthread_mutex_lock(&program->lock);
    struct recipe *CLEANUP(recipe_unref_pointer) recipe =
        program_info_vdev_recipe(program->details, vdev);
    uint32_t edition = atomic_load(&program->edition);
    recipe = recipe ? recipe_ref(recipe) : NULL;
    pthread_mutex_unlock(&program->lock);
    gate_enter();
    uint8_t residence_index = atomic_load(&context->residence_index[vdev]);
    if (recipe && residence_index != RESIDENCE_NONE &&
        atomic_load(&program->made[residence_index]) == edition && program->real[residence_index]) {
        residence = context->at[residence_index];
        residence_ref(residence);
        real = program->real[residence_index];
        if (residence->cl->clRetainProgram(real) != CL_SUCCESS)
            real = NULL;
    }
    gate_leave();
    if (real) {
        program_library_keep_asked(program, recipe, edition, residence, real);
        residence_release(residence->cl, OBJECT_PROGRAM, real);
    }
    residence_unref(residence);
}
