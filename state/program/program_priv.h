#ifndef RESEAT_STATE_PROGRAM_PROGRAM_PRIV_H
#define RESEAT_STATE_PROGRAM_PROGRAM_PRIV_H

#include "state/library/library.h"
#include "state/program/program.h"
#include "state/program/source_facts.h"
#include "state/recipe/recipe.h"

enum program_origin { PROGRAM_FROM_SOURCE, PROGRAM_FROM_IL, PROGRAM_FROM_BINARY, PROGRAM_LINKED };

/** What clGetProgramBuildInfo answers for one virtual device. */
struct program_vdev {
    cl_build_status status;
    cl_program_binary_type type;
    size_t globals; /**< CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE. */
    char *options;  /**< As the program gave them. NULL: "". Owned. */
    char *log;      /**< NULL: "". Owned. */
    struct recipe
        *recipe; /**< What was built for this virtual device; NULL: nothing, or in vain. */
};

struct program_details {
    pthread_cond_t built; /**< Signalled when `building` or `cutting` becomes false. */
    enum program_origin origin;
    uint32_t vdevs;      /**< Bit i: context->virtual devices[i] is one of the program's devices. */
    struct recipe *base; /**< As created, before anything was built. NULL when linked. */

    /* For pieces of launches: program_cut.h. */
    _Atomic(cl_program) *cut; /**< Owned; one for each of the context's residences. Written under
                                 the program's lock. */
    _Atomic uint32_t cut_refused;  /**< The edition, plus one, whose variant does not build. */
    _Atomic uint32_t cut_launches; /**< Launches of the variant that are under way. */
    _Atomic uint32_t cut_recorded; /**< Pieces of it that the journal has. */
    atomic_bool cutting;           /**< A thread is making the variant. */
    _Atomic uint64_t build_ns;     /**< What the program's own build took; 0: not known. */

    /* Guarded by the program's lock from here on. */
    bool building; /**< One thread builds it, and publishes the result before this gets false. */
    struct program_vdev *vdev; /**< Owned; one for each of the context's virtual devices. */
    struct pace *paces;        /**< Of the kernels made so far. Owned. */
    uint32_t digest_edition;   /**< The edition, plus one, of the next two; 0: none. */
    bool has_digest;
    unsigned char digest[CONTENT_HASH_SIZE]; /**< Of the recipe; identifies its kernels. */
    char *kernel_names;                      /**< Owned; NULL: the driver did not name them. */
    size_t kernel_count;
    struct source_facts *facts;        /**< NULL: the source is read when they are needed. Owned. */
    struct recipe_constant *constants; /**< Set by the program, for the next build. Owned. */
    uint32_t constant_count;
    unsigned char *container; /**< Of the recipe `contained`; made when asked for. Owned. */
    size_t container_size;
    struct recipe *contained;
    enum pin_kind pin; /**< The pin that it has taken on the context. */
};

/** One residence where work on a program is done outside the gate. */
struct program_site {
    struct residence *residence; /**< A reference. */
    uint8_t residence_index;
    uint32_t vdevs; /**< Bits: which of the context's virtual devices are there. */
};
struct program_sites {
    unsigned count;
    struct program_site site[VDEVS];
};
/** Where @vdevs of @context are now. Waits while any of them (@all), or all of them, are suspended.
 *  Returns inside the gate. */
void program_sites_enter(struct context *context, uint32_t vdevs, bool all,
                         struct program_sites *ret_sites);
/** True while all of @vdevs are where @sites says. Inside the gate, or with it closed. */
bool program_sites_hold(const struct context *context, uint32_t vdevs,
                        const struct program_sites *sites);
/** Outside the gate. */
void program_sites_drop(struct program_sites *sites);

/** One build, compilation or link that the program asked for, with copies of all that it named. */
enum program_work { PROGRAM_BUILD, PROGRAM_COMPILE, PROGRAM_LINK };
struct program_job {
    enum program_work work;
    struct program *program; /**< Held. */
    uint32_t vdevs;
    char *options;             /**< Owned. */
    struct program_list parts; /**< Headers or inputs, each held; arrays and names are owned. */
    struct recipe *recipe;     /**< The program's recipe if the job succeeds; a reference. */
    struct program_notify notify;
    bool visible; /**< A link's program was published, so it stays. */
    /** New real programs, one for each site; once published, the old ones, to be released. */
    cl_program replaced[VDEVS];
    uint64_t took_ns; /**< Time of a build's last attempt; 0: not known. */
};
/**
 * @parts  NULL: none. Each is waited for (program_settle) and held.
 * @ret_job  For program_job_run, or program_job_free.
 */
cl_int program_job_create(enum program_work work, struct program *program, uint32_t vdevs,
                          const char *options, const struct program_list *parts,
                          struct program_notify notify, struct program_job **ret_job);
void program_job_free(struct program_job *job);
/** Keep other jobs from the program until program_job_run() ends. CL_INVALID_OPERATION: it cannot
 *  be built now (see program_build). */
cl_int program_job_claim(struct program_job *job);
void program_job_unclaim(struct program_job *job);
/**
 * Do a claimed job, now or on a thread of its own, call the program's callback, and free the job.
 * @ret_visible  The program of a link has a handle, whether the link succeeded or not.
 */
cl_int program_job_run(struct program_job *job, bool *ret_visible);
/** The recipes of the parts; @bases: as they were created. Owned by the caller. */
cl_int program_job_recipes(const struct program_job *job, bool bases, struct recipe ***ret_recipes);
void program_recipes_free(struct recipe **recipes, cl_uint count);
/** The real programs of the parts at all sites, read inside the gate; NULL without memory. Owned by
 *  the caller. The parts are held, the site's residence keeps what a mover sets aside. */
cl_program *program_job_reals(const struct program_job *job, const struct program_sites *sites);

/** Publish the result of a job: what the program is told of it, and the recipe for its next
 *  residences. @outcomes: one for each site; their names become the program's. Inside the gate or
 *  with it closed. */
void program_publish(struct program_job *job, const struct program_sites *sites,
                     struct program_outcome *outcomes);
/** True when a site's device was lost meanwhile and the program, which is protected, is now on
 *  another: the job is to be done again there. Blocks until it is; outside the gate. */
bool program_sites_outlive(const struct program_sites *sites,
                           const struct program_outcome *outcomes);
/** Release what the sites need no more: the replaced programs, the outcomes. Outside the gate. */
void program_job_release(struct program_job *job, struct program_sites *sites,
                         struct program_outcome *outcomes);
/** One attempt. False: the program was moved meanwhile, so another attempt is needed. */
bool program_build_once(struct program_job *job, cl_int *ret_error);
bool program_link_once(struct program_job *job, cl_int *ret_error);

/** What a driver says after a build. */
struct program_outcome {
    bool known; /**< All members are set, so the driver need not be asked. */
    cl_int error;
    cl_build_status status;
    cl_program_binary_type type;
    size_t globals;
    bool doubtful;      /**< The driver answered as if its device were lost. */
    char *log;          /**< Owned, or NULL. */
    char *kernel_names; /**< Owned, or NULL. */
    size_t kernel_count;
    struct source_facts *facts; /**< From the library's entry, or for it. Owned, or NULL. */
};
/** Move the facts of @outcome, if any, to the program. Under the program's lock. */
static inline void program_take_facts(struct program_details *details,
                                      struct program_outcome *outcome)
{
    if (!outcome->facts)
        return;
    source_facts_free(details->facts);
    details->facts = outcome->facts;
    outcome->facts = NULL;
}
/** Ask the driver for everything but the error. Blocks; only without memory is something missing.
 */
void program_outcome_query(struct residence *residence, cl_program real,
                           struct program_outcome *outcome);
void program_outcome_finish(struct program_outcome *outcome);
/** The most useful line of a build log: the first with an error, else the first. @log may be NULL.
 */
void program_log_line(const char *log, char *ret_line, size_t size);
/**
 * True when a build failed only because its files were removed. clang, with which most drivers
 * build, removes the files it is writing when any thread of the process gets a fault signal, before
 * the program's own handler can mend that fault.
 */
bool program_log_lost_files(const char *log);

/**
 * Make the real program of @recipe in @residence. Binaries come from the library where it has them,
 * and are added to it where it lacks them. Programs made on the way (inputs, headers) are released.
 * A build that lost its files (above) is repeated a few times. Outside the gate.
 *
 * @ret_real  Owned by the caller; untouched on failure.
 * @outcome   NULL, or zeroes: filled in, except the error, when the library was used, and when the
 *            build failed, because the failed program is released.
 * Returns the driver's error. The log of a failed build is also written to our log.
 */
cl_int recipe_follow(const struct recipe *recipe, struct residence *residence, cl_program *ret_real,
                     struct program_outcome *outcome);

/** The result of looking a recipe up in the library of binaries (state/library/). */
struct program_lookup {
    struct library_key key;
    bool keep; /**< What is built now is to be kept. */
};
/**
 * Make the real program of @recipe from the library's binary for this device. False: the library
 * has none, the driver refuses it, or its kernels answer otherwise than those built from source.
 * Costs nothing where there is no library. Outside the gate.
 *
 * @ret_real     Owned by the caller; untouched on false.
 * @outcome      What the build from source said, without an error; untouched on false.
 * @ret_lookup   After false: for program_library_keep(), when the build from source succeeded.
 */
bool program_library_load(const struct recipe *recipe, struct residence *residence,
                          cl_program *ret_real, struct program_outcome *outcome,
                          struct program_lookup *ret_lookup);
/** True when the library keeps what is built from @recipe on @device, for all devices with the same
 * @ret_key. Costs nothing where there is no library. */
bool program_library_would_keep(const struct recipe *recipe, const struct device *device,
                                struct library_key *ret_key);
/**
 * Add to the library what was built from source. Errors are ignored. Meanwhile @real has no kernels
 * but those made here, and no other thread builds it.
 * @outcome  `known` is set; gets `facts`.
 */
void program_library_keep(const struct program_lookup *lookup, const struct recipe *recipe,
                          struct residence *residence, cl_program real,
                          struct program_outcome *outcome);
/**
 * Add @real, made from @recipe, to the library, unless it is there. Used when the program asks for
 * its binaries. May compile, as the driver itself may then. Errors are ignored. Outside the gate;
 * the caller has a reference to @real.
 * @edition  Of @program, of which @real is.
 */
void program_library_keep_asked(struct program *program, const struct recipe *recipe,
                                uint32_t edition, struct residence *residence, cl_program real);

/** True when both lists, separated by ";", have the same names in any order. False without memory.
 */
bool program_names_same(const char *one, const char *other);
/**
 * A hash of all answers to queries of @real's kernels (5.9.3, 5.9.4), in an order that does not
 * depend on the driver's. False when a kernel cannot be made, or without memory.
 * @names  Separated by ";".
 */
bool program_answers_hash(struct residence *residence, cl_program real, const char *names,
                          unsigned char ret[CONTENT_HASH_SIZE]);
/** True when @error says that the driver cannot build this, and not that it has no memory. */
bool recipe_is_refused(cl_int error);
/** What a compilation includes. */
struct program_headers {
    cl_uint count;
    const cl_program *reals;
    const char **names;
};
/**
 * Build @real, or compile it when @headers is not NULL. -cl-kernel-arg-info is added where it makes
 * the driver tell the kinds of parameters; if the build fails with it, it is repeated without.
 */
cl_int recipe_build_real(const struct recipe *origin, const struct residence *residence,
                         cl_program real, const char *options,
                         const struct program_headers *headers);
/** Set the specialisation constants of a real program. */
cl_int recipe_specialise(const struct residence *residence, cl_program real,
                         const struct recipe_constant *constants, uint32_t count);

/** Why this program cannot be carried as it is built now, or PIN_NONE. Under the program's lock. */
enum pin_kind program_find_pin(const struct program *program);

/** An unpublished program of @vdevs. NULL without memory. @base: a reference is taken; or NULL. */
struct program *program_new(struct context *context, uint32_t vdevs, enum program_origin origin,
                            struct recipe *base);
/** Undo program_new. */
void program_discard(struct program *program);

#endif
