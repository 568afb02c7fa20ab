#include "agent/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"

bool elf_is_loader(const char *library)
{
    const char *slash = strrchr(library, '/');

    return strncmp(slash ? slash + 1 : library, "libOpenCL.so", 12) == 0;
}

/** True for "clGetPlatformIDs", false for "close" or "clock". */
static bool elf_facts_is_opencl_function(const char *name)
{
    return name[0] == 'c' && name[1] == 'l' && name[2] >= 'A' && name[2] <= 'Z';
}

static bool elf_facts_same_machine(Elf *elf, const GElf_Ehdr *header)
{
    CLEANUP(cleanup_close) int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    Elf *self = fd < 0 ? NULL : elf_begin(fd, ELF_C_READ, NULL);
    GElf_Ehdr own;
    bool same = self && gelf_getehdr(self, &own) && own.e_machine == header->e_machine &&
                gelf_getclass(self) == gelf_getclass(elf);

    elf_end(self);
    return same;
}

static int elf_facts_add_paths(struct strings *strings, const char *list, const char *origin)
{
    CLEANUP(cleanup_free) char *copy = strdup(list);
    char *rest = copy;
    int error = copy ? 0 : -ENOMEM;

    for (char *part = strsep(&rest, ":"); part && !error; part = strsep(&rest, ":")) {
        char path[PATH_MAX];
        const char *after = NULL;
        if (strncmp(part, "$ORIGIN", 7) == 0)
            after = part + 7;
        else if (strncmp(part, "${ORIGIN}", 9) == 0)
            after = part + 9;
        int length =
            snprintf(path, sizeof(path), "%s%s", after ? origin : "", after ? after : part);
        if (*part && length > 0 && length < PATH_MAX)
            error = strings_add(strings, path);
    }
    return error;
}

static int elf_facts_read_dynamic(Elf *elf, Elf_Scn *section, const GElf_Shdr *header,
                                  const char *origin, struct elf_facts *facts)
{
    Elf_Data *data = elf_getdata(section, NULL);
    GElf_Dyn entry;
    int error = 0;

    for (int i = 0; data && !error && gelf_getdyn(data, i, &entry) && entry.d_tag; i++) {
        if (entry.d_tag != DT_NEEDED && entry.d_tag != DT_RPATH && entry.d_tag != DT_RUNPATH)
            continue;
        const char *text = elf_strptr(elf, header->sh_link, entry.d_un.d_val);
        if (text && entry.d_tag == DT_NEEDED)
            error = strings_add(&facts->needed, text);
        else if (text)
            error = elf_facts_add_paths(&facts->rpath, text, origin);
    }
    return error;
}

static int elf_facts_read_symbols(Elf *elf, Elf_Scn *section, const GElf_Shdr *header,
                                  bool exported, struct elf_facts *facts)
{
    Elf_Data *data = elf_getdata(section, NULL);
    GElf_Sym symbol;
    int error = 0;

    for (int i = 0; data && !error && gelf_getsym(data, i, &symbol); i++) {
        const char *name = elf_strptr(elf, header->sh_link, symbol.st_name);
        if (!name || !elf_facts_is_opencl_function(name))
            continue;
        if (symbol.st_shndx == SHN_UNDEF) {
            error = exported ? strings_add(&facts->uses, name) : 0;
        } else {
            facts->own = facts->own || strcmp(name, "clGetPlatformIDs") == 0;
            error = exported ? strings_add(&facts->offers, name) : 0;
        }
    }
    return error;
}

static int elf_facts_read_sections(Elf *elf, const char *origin, struct elf_facts *facts)
{
    Elf_Scn *section = NULL;
    int error = 0;

    while (!error && (section = elf_nextscn(elf, section))) {
        GElf_Shdr header;
        if (!gelf_getshdr(section, &header))
            continue;
        if (header.sh_type == SHT_DYNAMIC) {
            facts->dynamic = true;
            error = elf_facts_read_dynamic(elf, section, &header, origin, facts);
        } else if (header.sh_type == SHT_DYNSYM || header.sh_type == SHT_SYMTAB) {
            error =
                elf_facts_read_symbols(elf, section, &header, header.sh_type == SHT_DYNSYM, facts);
        } else if (header.sh_type == SHT_PROGBITS && header.sh_flags & SHF_ALLOC &&
                   !(header.sh_flags & SHF_EXECINSTR)) {
            const Elf_Data *data = elf_rawdata(section, NULL);
            if (!data || !data->d_buf)
                continue;
            facts->opens = facts->opens || memmem(data->d_buf, data->d_size, "libOpenCL", 9);
            facts->reads = facts->reads || memmem(data->d_buf, data->d_size, "OCL_ICD_VENDORS", 15);
        }
    }
    return error;
}

/** True when a dynamic linker, which reads LD_PRELOAD, loads the file: not a static-pie. */
static bool elf_facts_has_linker(Elf *elf, const GElf_Ehdr *header, const struct elf_facts *facts)
{
    size_t count;

    if (elf_getphdrnum(elf, &count))
        return false;
    for (size_t i = 0; i < count; i++) {
        GElf_Phdr program;
        if (gelf_getphdr(elf, (int)i, &program) && program.p_type == PT_INTERP)
            return true;
    }
    return header->e_type == ET_DYN && facts->needed.count > 0;
}

int elf_facts_read(const char *path, struct elf_facts *ret_facts)
{
    struct elf_facts facts = {0};
    char origin[PATH_MAX];
    GElf_Ehdr header;
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return -errno;
    if (!realpath(path, origin))
        return -errno;
    *strrchr(origin, '/') = '\0';
    elf_version(EV_CURRENT);
    Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
    int error = 0;
    if (elf && elf_kind(elf) == ELF_K_ELF && gelf_getehdr(elf, &header)) {
        facts.elf = true;
        facts.native = elf_facts_same_machine(elf, &header);
        error = elf_facts_read_sections(elf, origin, &facts);
        facts.dynamic = facts.dynamic && elf_facts_has_linker(elf, &header, &facts);
    }
    elf_end(elf);
    if (error) {
        elf_facts_finish(&facts);
        return error;
    }
    *ret_facts = facts;
    return 0;
}

void elf_facts_finish(struct elf_facts *facts)
{
    strings_finish(&facts->needed);
    strings_finish(&facts->rpath);
    strings_finish(&facts->uses);
    strings_finish(&facts->offers);
}
