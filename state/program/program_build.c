#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/work.h"
#include "state/program/program_priv.h"

/* clBuildProgram and clCompileProgram: what they ask of the drivers. */

static cl_int program_build_recipe(struct program_job *job)
{
    struct program_details *details = job->program->details;
    /* An executable that came out of a container is built as it was, whatever options the program
     * gives now: its recipe, and so its container, stays the same however often it is reloaded. */
    if (job->work == PROGRAM_BUILD &&
        recipe_binary_type(details->base) == CL_PROGRAM_BINARY_TYPE_EXECUTABLE) {
        job->recipe = recipe_ref(details->base);
        return CL_SUCCESS;
    }
    pthread_mutex_lock(&job->program->lock);
    uint32_t count = details->constant_count;
    struct recipe_constant *constants = calloc(count ? count : 1, sizeof(*constants));
    if (constants && count)
        memcpy(constants, details->constants, count * sizeof(*constants));
    pthread_mutex_unlock(&job->program->lock);
    if (!constants)
        return CL_OUT_OF_HOST_MEMORY;
    int err = 0;
    cl_int error = CL_SUCCESS;
    if (job->work == PROGRAM_BUILD) {
        err = recipe_built(details->base, job->options, constants, count, &job->recipe);
    } else {
        struct recipe **headers;
        error = program_job_recipes(job, true, &headers);
        if (error == CL_SUCCESS) {
            err = recipe_step(RECIPE_COMPILED, details->base, job->options, job->parts.count,
                              headers, job->parts.names, constants, count, &job->recipe);
            program_recipes_free(headers, job->parts.count);
        }
    }
    if (!err && error == CL_SUCCESS)
        err = recipe_keep_headers(job->recipe);
    free(constants);
    return err ? program_error(err) : error;
}

/* The driver's call at one site. @headers: as many as the build has. */
static cl_int program_build_at(const struct program_job *job, const struct program_site *site,
                               cl_program real, const cl_program *headers)
{
    const struct recipe *recipe = job->recipe;
    const struct program_headers given = {job->parts.count, headers, job->parts.names};
    if (!real)
        return CL_INVALID_PROGRAM;
    cl_int error =
        recipe_specialise(site->residence, real, recipe->constants, recipe->constant_count);
    if (error != CL_SUCCESS)
        return error;
    return recipe_build_real(job->program->details->base, site->residence, real, job->options,
                             job->work == PROGRAM_BUILD ? NULL : &given);
}

/* Build a new real program in place of the old one. Needed where the old one was built before (some
 * drivers still name the kernels of that build); where the driver refuses because it still has
 * kernels of it (a mover's, or a command's in flight); where the driver read other headers than
 * were kept; and where the old one was not made from what the program was created from. */
static cl_int program_build_anew(struct program_job *job, const struct program_site *site,
                                 unsigned s, cl_program *real, struct program_outcome *outcome)
{
    cl_program made = NULL;
    cl_int error = recipe_follow(job->recipe, site->residence, &made, outcome);
    if (error == CL_SUCCESS)
        *real = job->replaced[s] = made;
    return error;
}

/* A program from a container was built when it was created, so that a device that cannot build it
 * is refused then. One that was only compiled is linked now, into a new real program. */
static cl_int program_build_container(struct program_job *job, const struct program_site *site,
                                      unsigned s, cl_program *real, struct program_outcome *outcome)
{
    if (recipe_binary_type(job->program->details->base) == CL_PROGRAM_BINARY_TYPE_EXECUTABLE &&
        *real)
        return CL_SUCCESS;
    cl_int error = program_build_anew(job, site, s, real, outcome);
    return error == CL_LINK_PROGRAM_FAILURE ? CL_BUILD_PROGRAM_FAILURE : error;
}

/* True when the real program has the source or IL that ours was created from. One that was made
 * from a binary has not, nor has one that a move made with headers that are no longer on disk. */
static bool program_build_is_as_created(const struct recipe *base,
                                        const struct residence *residence, cl_program real)
{
    bool source = base->kind == RECIPE_SOURCE;
    cl_program_info what = source ? CL_PROGRAM_SOURCE : CL_PROGRAM_IL;
    size_t prologue = source ? strlen(program_prologue) : 0, size = 0;
    if (!real || residence->cl->clGetProgramInfo(real, what, 0, NULL, &size) != CL_SUCCESS ||
        size < prologue + base->size || size > prologue + base->size + 1)
        return false;
    char *CLEANUP(cleanup_free) text = calloc(1, size + 1);
    return text && residence->cl->clGetProgramInfo(real, what, size, text, NULL) == CL_SUCCESS &&
           memcmp(text + prologue, base->bytes, base->size) == 0;
}

/* Take the library's binary, which becomes a new real program; without one, build the real program
 * that has the source or IL. */
static cl_int program_build_here(struct program_job *job, const struct program_site *site,
                                 unsigned s, cl_program *real, const cl_program *headers,
                                 struct program_outcome *outcome)
{
    cl_program made = NULL;
    struct program_lookup lookup;
    if (program_library_load(job->recipe, site->residence, &made, outcome, &lookup)) {
        *real = job->replaced[s] = made;
        return CL_SUCCESS;
    }
    if (atomic_load(&job->program->edition) > 1 ||
        !program_build_is_as_created(job->program->details->base, site->residence, *real))
        return program_build_anew(job, site, s, real, outcome);
    cl_int error = program_build_at(job, site, *real, headers);
    if (error == CL_INVALID_OPERATION || (error == CL_SUCCESS && !recipe_headers_hold(job->recipe)))
        return program_build_anew(job, site, s, real, outcome);
    if (error == CL_SUCCESS && lookup.keep) {
        program_outcome_query(site->residence, *real, outcome);
        program_library_keep(&lookup, job->recipe, site->residence, *real, outcome);
    }
    return error;
}

/* Drivers give different errors for wrong options. The options are wrong if an empty program does
 * not build with them either. */
static cl_int program_build_which_failure(const struct program_job *job,
                                          struct residence *residence, cl_int error)
{
    static const char nothing[] = "__kernel void reseat_nothing(__global int *a) { a[0] = 0; }\n";
    const cl_icd_dispatch *cl = residence->cl;
    const char *text = nothing;
    bool compiles = job->work == PROGRAM_COMPILE;
    if (!recipe_is_refused(error) || !job->options[strspn(job->options, " \t\n")])
        return error;
    cl_program real = cl->clCreateProgramWithSource(residence->context, 1, &text, NULL, NULL);
    if (!real)
        return error;
    cl_int again = cl->clBuildProgram(real, 1, &residence->device->id, job->options, NULL, NULL);
    cl->clReleaseProgram(real);
    if (again != CL_SUCCESS)
        return compiles ? CL_INVALID_COMPILER_OPTIONS : CL_INVALID_BUILD_OPTIONS;
    return compiles ? CL_COMPILE_PROGRAM_FAILURE : CL_BUILD_PROGRAM_FAILURE;
}

/* A program from a container of source or IL that was never built behaves like one created from
 * that source or IL. */
static bool program_build_is_in_place(const struct program *program)
{
    const struct recipe *base = program->details->base;
    return base->kind == RECIPE_SOURCE || base->kind == RECIPE_IL;
}

/* One site of a build. */
struct site_build {
    struct program_job *job;
    const struct program_site *site;
    unsigned at;
    cl_program *real;
    const cl_program *headers; /* Of this site; NULL: there are none. */
    struct program_outcome *outcome;
    bool later; /* After the first of those that the library has one binary for. */
    pthread_t thread;
    bool threaded;
};

static void program_build_site(const struct site_build *build)
{
    struct program_outcome *outcome = build->outcome;
    outcome->status = CL_BUILD_ERROR;
    bool swaps = !program_build_is_in_place(build->job->program);
    if (build->job->work == PROGRAM_COMPILE && !build->headers)
        outcome->error = CL_OUT_OF_HOST_MEMORY;
    else if (swaps)
        outcome->error =
            program_build_container(build->job, build->site, build->at, build->real, outcome);
    else
        outcome->error = program_build_here(build->job, build->site, build->at, build->real,
                                            build->headers, outcome);
    outcome->error =
        program_build_which_failure(build->job, build->site->residence, outcome->error);
    if (!outcome->known && *build->real && (!swaps || outcome->error == CL_SUCCESS))
        program_outcome_query(build->site->residence, *build->real, outcome);
}

/* The thread that asked for the build joins this one. */
static void *program_build_run_site(void *data)
{
    (void)work_begin();
    program_build_site(data);
    work_end();
    return NULL;
}

/* Build on all devices at once: each driver has its own compiler, or runs on another machine. */
static void program_build_wave(struct site_build *builds, unsigned count, bool later)
{
    unsigned first = 0;
    while (first < count && builds[first].later != later)
        first++;
    for (unsigned s = first + 1; s < count; s++)
        builds[s].threaded =
            builds[s].later == later && thread_start("reseat-build", 0, program_build_run_site,
                                                     &builds[s], &builds[s].thread) == 0;
    for (unsigned s = first; s < count; s++)
        if (builds[s].later == later && !builds[s].threaded)
            program_build_site(&builds[s]);
    for (unsigned s = first; s < count; s++)
        if (builds[s].later == later && builds[s].threaded)
            pthread_join(builds[s].thread, NULL);
}

/* Of equal devices the first builds and the library keeps what it made, which the others load then.
 */
static void program_build_sites(struct site_build *builds, unsigned count)
{
    struct library_key keys[VDEVS];
    bool kept[VDEVS];
    for (unsigned s = 0; s < count; s++) {
        kept[s] = program_library_would_keep(builds[s].job->recipe,
                                             builds[s].site->residence->device, &keys[s]);
        for (unsigned first = 0; kept[s] && first < s && !builds[s].later; first++)
            builds[s].later = kept[first] && memcmp(&keys[first], &keys[s], sizeof(keys[s])) == 0;
    }
    program_build_wave(builds, count, false);
    program_build_wave(builds, count, true);
}

/* False where the program left the residence and came back meanwhile: its real program there is
 * another one, which this job did not build. */
static bool program_build_has_built(const struct program_job *job,
                                    const struct program_sites *sites, const cl_program *reals)
{
    bool has = true;
    for (unsigned s = 0; s < sites->count; s++)
        has = has &&
              (job->replaced[s] || job->program->real[sites->site[s].residence_index] == reals[s]);
    return has;
}

bool program_build_once(struct program_job *job, cl_int *ret_error)
{
    struct program *program = job->program;
    struct program_sites sites;
    struct program_outcome outcomes[VDEVS] = {0};
    cl_program reals[VDEVS], found[VDEVS];
    struct site_build builds[VDEVS] = {0};
    cl_program *headers = NULL;
    bool replaces = false, settled;
    cl_int error = CL_SUCCESS;
    program_sites_enter(program->context, job->vdevs, true, &sites);
    for (unsigned s = 0; s < sites.count; s++)
        reals[s] = found[s] = program->real[sites.site[s].residence_index];
    if (job->work == PROGRAM_COMPILE)
        headers = program_job_reals(job, &sites);
    gate_leave();
    for (unsigned s = 0; s < sites.count; s++)
        builds[s] = (struct site_build){
            .job = job,
            .site = &sites.site[s],
            .at = s,
            .real = &reals[s],
            .headers = headers ? headers + (size_t)s * job->parts.count : NULL,
            .outcome = &outcomes[s],
        };
    job->took_ns = clock_now_ns();
    program_build_sites(builds, sites.count);
    job->took_ns = clock_now_ns() - job->took_ns;
    for (unsigned s = 0; s < sites.count; s++) {
        replaces = replaces || job->replaced[s] != NULL;
        if (error == CL_SUCCESS)
            error = outcomes[s].error;
    }
    free(headers);
    bool lost = program_sites_outlive(&sites, outcomes);
    /* A real program is replaced and released only when no other thread is inside the gate. */
    replaces = replaces && !lost;
    if (replaces && gate_close(0) != 0)
        replaces = false;
    if (!replaces)
        gate_enter();
    settled = !lost && program_sites_hold(program->context, job->vdevs, &sites) &&
              program_build_has_built(job, &sites, found);
    if (settled)
        program_publish(job, &sites, outcomes);
    if (replaces)
        gate_open();
    else
        gate_leave();
    program_job_release(job, &sites, outcomes);
    *ret_error = error;
    return settled;
}

static cl_int program_build_start(enum program_work work, struct program *program, uint32_t vdevs,
                                  const char *options, const struct program_list *headers,
                                  struct program_notify notify)
{
    struct program_job *job;
    bool visible;
    cl_int error = program_job_create(work, program, vdevs, options, headers, notify, &job);
    if (error != CL_SUCCESS)
        return error;
    error = program_job_claim(job);
    if (error == CL_SUCCESS) {
        error = program_build_recipe(job);
        if (error == CL_SUCCESS)
            return program_job_run(job, &visible);
        program_job_unclaim(job);
    }
    program_job_free(job);
    return error;
}

cl_int program_build(struct program *program, uint32_t vdevs, const char *options,
                     struct program_notify notify)
{
    if (program->details->origin == PROGRAM_LINKED)
        return CL_INVALID_OPERATION;
    return program_build_start(PROGRAM_BUILD, program, vdevs, options, NULL, notify);
}

cl_int program_compile(struct program *program, uint32_t vdevs, const char *options,
                       const struct program_list *headers, struct program_notify notify)
{
    enum program_origin origin = program->details->origin;
    if (origin != PROGRAM_FROM_SOURCE && origin != PROGRAM_FROM_IL)
        return CL_INVALID_OPERATION;
    return program_build_start(PROGRAM_COMPILE, program, vdevs, options, headers, notify);
}
