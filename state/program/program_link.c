#include "state/program/program_priv.h"

#include <stdlib.h>

/* clLinkProgram. */

/* The driver's call at one site. */
static void program_link_at(struct program_job *job, const struct program_site *site, unsigned s,
                            const cl_program *inputs, struct program_outcome *outcome)
{
    const cl_icd_dispatch *cl = site->residence->cl;
    struct program_lookup lookup;
    outcome->status = CL_BUILD_ERROR;
    for (cl_uint i = 0; i < job->parts.count; i++) {
        if (!inputs[i]) {
            outcome->error = CL_INVALID_PROGRAM;
            return;
        }
    }
    if (program_library_load(job->recipe, site->residence, &job->replaced[s], outcome, &lookup))
        return;
    if (!cl->clLinkProgram) {
        outcome->error = CL_INVALID_OPERATION;
        return;
    }
    job->replaced[s] =
        cl->clLinkProgram(site->residence->context, 1, &site->residence->device->id, job->options,
                          job->parts.count, inputs, NULL, NULL, &outcome->error);
    if (job->replaced[s])
        program_outcome_query(site->residence, job->replaced[s], outcome);
    else if (outcome->error == CL_SUCCESS)
        outcome->error = CL_LINK_PROGRAM_FAILURE;
    if (outcome->error == CL_SUCCESS && lookup.keep)
        program_library_keep(&lookup, job->recipe, site->residence, job->replaced[s], outcome);
}

bool program_link_once(struct program_job *job, cl_int *ret_error)
{
    struct program *program = job->program;
    struct program_sites sites;
    struct program_outcome outcomes[VDEVS] = {0};
    cl_int error = CL_SUCCESS;
    bool made = job->visible;
    program_sites_enter(program->context, job->vdevs, true, &sites);
    cl_program *reals = program_job_reals(job, &sites);
    gate_leave();
    for (unsigned s = 0; s < sites.count; s++) {
        outcomes[s].status = CL_BUILD_ERROR;
        if (reals)
            program_link_at(job, &sites.site[s], s, reals + (size_t)s * job->parts.count,
                            &outcomes[s]);
        else
            outcomes[s].error = CL_OUT_OF_HOST_MEMORY;
        made = made || job->replaced[s];
        if (error == CL_SUCCESS)
            error = outcomes[s].error;
    }
    free(reals);
    bool lost = program_sites_outlive(&sites, outcomes);
    gate_enter();
    bool settled = !lost && program_sites_hold(program->context, job->vdevs, &sites);
    if (settled && made) {
        program_publish(job, &sites, outcomes);
        if (!job->visible)
            object_publish(program);
        job->visible = true;
    }
    gate_leave();
    program_job_release(job, &sites, outcomes);
    *ret_error = error;
    return settled;
}

/* True when @part was compiled, or is a library, for @vdev. */
static bool program_link_is_linkable(struct program *part, cl_uint vdev)
{
    struct program_state state;
    program_vdev_state(part, vdev, &state);
    bool loaded = part->details->origin == PROGRAM_FROM_BINARY && state.status == CL_BUILD_NONE &&
                  program_vdevs(part) & (1u << vdev);
    return (state.status == CL_BUILD_SUCCESS || loaded) &&
           (state.type == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT ||
            state.type == CL_PROGRAM_BINARY_TYPE_LIBRARY);
}

/* 5.8.4: for each device either all inputs can be linked, or none can, and nothing is linked for
 * it. */
static cl_int program_link_linkable_vdevs(const struct program_job *job, uint32_t *ret_vdevs)
{
    uint32_t vdevs = 0;
    for (cl_uint i = 0; i < job->program->context->vdev_count; i++) {
        cl_uint count = 0;
        if (!(job->vdevs & (1u << i)))
            continue;
        for (cl_uint p = 0; p < job->parts.count; p++)
            count += program_link_is_linkable(job->parts.programs[p], i);
        if (count == job->parts.count)
            vdevs |= 1u << i;
        else if (count != 0)
            return CL_INVALID_OPERATION;
    }
    *ret_vdevs = vdevs;
    return vdevs ? CL_SUCCESS : CL_INVALID_OPERATION;
}

static cl_int program_link_recipe_of(struct program_job *job)
{
    struct recipe **recipes;
    cl_int error = program_job_recipes(job, false, &recipes);
    if (error != CL_SUCCESS)
        return error;
    int err = recipe_linked(job->parts.count, recipes, job->options, &job->recipe);
    program_recipes_free(recipes, job->parts.count);
    return err ? program_error(err) : CL_SUCCESS;
}

cl_int program_link(struct context *context, uint32_t vdevs, const char *options,
                    const struct program_list *inputs, struct program_notify notify,
                    struct program **ret_program)
{
    struct program *program = program_new(context, vdevs, PROGRAM_LINKED, NULL);
    struct program_job *job;
    bool visible = false;
    if (!program)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = program_job_create(PROGRAM_LINK, program, vdevs, options, inputs, notify, &job);
    if (error != CL_SUCCESS)
        goto discard;
    error = program_link_linkable_vdevs(job, &job->vdevs);
    if (error == CL_SUCCESS)
        error = program_link_recipe_of(job);
    if (error == CL_SUCCESS)
        error = program_job_claim(job);
    if (error != CL_SUCCESS) {
        program_job_free(job);
        goto discard;
    }
    if (notify.call) {
        /* The program is returned before the link has ended. */
        gate_enter();
        object_publish(program);
        gate_leave();
        job->visible = true;
    }
    error = program_job_run(job, &visible);
    if (visible) {
        *ret_program = program;
        return error;
    }
discard:
    program_discard(program);
    return error;
}
