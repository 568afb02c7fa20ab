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
    pthread_cond_t built; /**< `building` or `cutting` became false. */
    enum program_origin origin;
    uint32_t vdevs;      /**< Bit i: context->virtual devices[i] is one of the program's devices. */
    struct recipe *base; /**< As created, before anything was built. NULL when linked. */

    /* For pieces of launches: program_cut.h. */
    _Atomic(cl_program) cut[RESIDENCES_MAX]; /**< Written under the program's lock. */
    _Atomic uint32_t cut_refused;            /**< The edition plus one that does not build so. */
    _Atomic uint32_t cut_launches;           /**< That are under way with it. */
    atomic_bool cutting;                     /**< A thread makes it. */
    _Atomic uint64_t build_ns; /**< What the program's own build took; 0: not known. */

    /* Guarded by the program's lock from here on. */
    bool building; /**< By one thread; what it makes is published before this becomes false. */
    struct program_vdev vdev[VDEVS];
    struct pace *paces;      /**< Owned; of the kernels made so far. */
    uint32_t digest_edition; /**< The edition that the next two are of, plus one; 0: none. */
    bool has_digest;
    unsigned char digest[CONTENT_HASH_SIZE]; /**< Of the recipe: what its kernels are known by. */
    char *kernel_names;                      /**< Owned; NULL where the driver does not tell. */
    size_t kernel_count;
    struct source_facts *facts; /**< Of a recipe, or NULL: source is read when asked. Owned. */
    struct recipe_constant *constants; /**< Set by the program, for the next build. Owned. */
    uint32_t constant_count;
    unsigned char *container; /**< Of `contained`; made when asked for. Owned. */
    size_t container_size;
    struct recipe *contained;
    enum pin_kind pin; /**< Taken on the context. */
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
/** Where @vdevs of @context are now; waits while one (@all) or each of them is suspended. Leaves
 *  inside the gate. */
void program_sites_enter(struct context *context, uint32_t vdevs, bool all,
                         struct program_sites *ret_sites);
/** Still there? Inside the gate, or with it closed. */
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
    struct recipe *recipe;     /**< What it is, if it succeeds; a reference. */
    struct program_notify notify;
    bool visible;               /**< A link's program was published, so it stays. */
    cl_program replaced[VDEVS]; /**< By new real programs, one a site. */
    uint64_t took_ns;           /**< A build's last attempt; 0: not known. */
};
/**
 * @parts  NULL: none. Each is waited for (program_settle) and held.
 * @ret_job  For program_job_run, or program_job_free.
 */
cl_int program_job_create(enum program_work work, struct program *program, uint32_t vdevs,
                          const char *options, const struct program_list *parts,
                          struct program_notify notify, struct program_job **ret_job);
void program_job_free(struct program_job *job);
/** Make the program this job's alone, or CL_INVALID_OPERATION; program_job_run undoes it. */
cl_int program_job_claim(struct program_job *job);
void program_job_unclaim(struct program_job *job);
/**
 * Do what was claimed, now or on a thread of its own, tell who is to be told, and free the job.
 * @ret_visible  The program of a link has a handle, whatever came of the link.
 */
cl_int program_job_run(struct program_job *job, bool *ret_visible);
/** The recipes of the parts; @bases: as they were created. Owned by the caller. */
cl_int program_job_recipes(const struct program_job *job, bool bases, struct recipe ***ret_recipes);
void program_recipes_free(struct recipe **recipes, cl_uint count);
/** The real programs of the parts at all sites, read inside the gate; NULL without memory. Owned by
 *  the caller. The parts are held, the site's residence keeps what a mover sets aside. */
cl_program *program_job_reals(const struct program_job *job, const struct program_sites *sites);

/** What the program will be told, and where it is built again from now on. Inside the gate or with
 *  it closed; takes the outcomes' names, one outcome a site. */
void program_publish(struct program_job *job, const struct program_sites *sites,
                     struct program_outcome *outcomes);
/** The device of a site was lost meanwhile, and the program is protected: true once it is on
 * another one, for all to be done again there. Outside the gate; blocks on that. */
bool program_sites_outlive(const struct program_sites *sites,
                           const struct program_outcome *outcomes);
/** Let go of what a site does not need any more. Outside the gate. */
void program_job_release(struct program_job *job, struct program_sites *sites,
                         struct program_outcome *outcomes);
/** One attempt each; false when the program was moved meanwhile. */
bool program_build_once(struct program_job *job, cl_int *ret_error);
bool program_link_once(struct program_job *job, cl_int *ret_error);

/** What a driver says after a build. */
struct program_outcome {
    bool known; /**< All of it, so that nobody needs to ask the driver. */
    cl_int error;
    cl_build_status status;
    cl_program_binary_type type;
    size_t globals;
    bool doubtful;      /**< The driver did not answer as one does that has its device. */
    char *log;          /**< Owned, or NULL. */
    char *kernel_names; /**< Owned, or NULL. */
    size_t kernel_count;
    struct source_facts *facts; /**< From the library's entry, or for it. Owned, or NULL. */
};
/** The outcome's become the program's, where there are some. Under the program's lock. */
static inline void program_take_facts(struct program_details *details,
                                      struct program_outcome *outcome)
{
    if (!outcome->facts)
        return;
    source_facts_free(details->facts);
    details->facts = outcome->facts;
    outcome->facts = NULL;
}
/** Ask for everything but the error. Blocks on the driver; nothing is missing but for memory. */
void program_outcome_query(struct residence *residence, cl_program real,
                           struct program_outcome *outcome);
void program_outcome_finish(struct program_outcome *outcome);
/** The line of a build log, or of NULL, that tells most: the first with an error, or the first. */
void program_log_line(const char *log, char *ret_line, size_t size);
/**
 * A build did not fail for what it was given: clang, which most drivers build with, removes the
 * files that it writes when a signal of a fault comes, wherever in the process that is, and before
 * it lets the program's handler mend the fault.
 */
bool program_log_lost_files(const char *log);

/**
 * Follow @recipe in @residence, outside the gate; what the library of binaries has is made from
 * that, and what it lacks is kept there. Programs that are made on the way are released. A build
 * that lost its files (above) is begun again, a few times.
 *
 * @ret_real  Owned by the caller; untouched on failure.
 * @outcome   NULL, or zeroes: filled in, but for the error, where the library told or was told, and
 *            where the driver failed to build, since that program is gone then.
 * Returns the driver's error; the log of what failed is in ours as well.
 */
cl_int recipe_follow(const struct recipe *recipe, struct residence *residence, cl_program *ret_real,
                     struct program_outcome *outcome);

/** What is known of a recipe that was looked up in the library of binaries (state/library/). */
struct program_lookup {
    struct library_key key;
    bool keep; /**< What is built now is to be kept. */
};
/**
 * Make what @recipe would make from the library's binary for this device, where it has one that the
 * driver takes and whose kernels say what they said when they were built from source. Outside the
 * gate, and free where there is no library.
 *
 * @ret_real     Owned by the caller; untouched where it returns false.
 * @outcome      What the build from source told, and no error; untouched likewise.
 * @ret_lookup   For program_library_keep(), where it returns false and the build then succeeds.
 */
bool program_library_load(const struct recipe *recipe, struct residence *residence,
                          cl_program *ret_real, struct program_outcome *outcome,
                          struct program_lookup *ret_lookup);
/**
 * Keep what was built from source. @real has no kernels while this runs, but ones made here, and
 * nobody else builds it. What goes wrong changes nothing.
 * @outcome  Known; gets `facts`.
 */
void program_library_keep(const struct program_lookup *lookup, const struct recipe *recipe,
                          struct residence *residence, cl_program real,
                          struct program_outcome *outcome);
/**
 * Keep what @recipe made, which is @real, of @program's @edition, unless the library has it. For
 * programs that ask for their binaries: as the driver would then, it compiles for as long as it
 * takes. What goes wrong changes nothing. Outside the gate; the caller has a reference to @real.
 */
void program_library_keep_asked(struct program *program, const struct recipe *recipe,
                                uint32_t edition, struct residence *residence, cl_program real);

/** The same names with ";" between, in whatever order? False without memory. */
bool program_names_same(const char *one, const char *other);
/**
 * A hash of all that the kernels of @real answer (5.9.3, 5.9.4), which does not depend on the order
 * in which the driver names them. False where one cannot be made, or without memory.
 * @names  With ";" between.
 */
bool program_answers_hash(struct residence *residence, cl_program real, const char *names,
                          unsigned char ret[CONTENT_HASH_SIZE]);
/** The driver says that it cannot build or compile this, rather than that it has no room. */
bool recipe_is_refused(cl_int error);
/** What a compilation includes. */
struct program_headers {
    cl_uint count;
    const cl_program *reals;
    const char **names;
};
/**
 * Have the driver build @real, or compile it, @headers not NULL: with -cl-kernel-arg-info where
 * that makes it tell parameters' kinds. Where it does not build so, it is built as @options say,
 * and the driver does not tell.
 */
cl_int recipe_build_real(const struct recipe *origin, const struct residence *residence,
                         cl_program real, const char *options,
                         const struct program_headers *headers);
/** Set the specialisation constants of a real program. */
cl_int recipe_specialise(const struct residence *residence, cl_program real,
                         const struct recipe_constant *constants, uint32_t count);

/** Why this program cannot be carried as it is built now, or PIN_NONE. Under the program's lock. */
enum pin_kind program_find_pin(const struct program *program);

/** CL_OUT_OF_HOST_MEMORY or CL_OUT_OF_RESOURCES, for -errno of recipes and containers. */
cl_int program_error(int err);

/** An unpublished program of @vdevs. NULL without memory. @base: a reference is taken; or NULL. */
struct program *program_new(struct context *context, uint32_t vdevs, enum program_origin origin,
                            struct recipe *base);
/** Undo program_new. */
void program_discard(struct program *program);

#endif
