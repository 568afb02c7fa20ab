#include "state/driver/rebind.h"

#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state/base/compiler.h"
#include "state/base/log.h"

/* The parts of a library's dynamic section that are needed. */
struct binding {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *strings;
    struct relocations {
        const ElfW(Rela) * first;
        size_t count;
    } tables[2]; /* of data and of the procedure linkage, with addends (64-bit machines) */
};

static struct binding rebind_binding_of(const struct link_map *map)
{
    struct binding binding = {.base = map->l_addr};
    /* glibc has added the base to the addresses, but not where the section is read-only. */
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        uintptr_t address = d->d_un.d_ptr;
        if (address < map->l_addr)
            address += map->l_addr;
        switch (d->d_tag) {
        case DT_SYMTAB:
            binding.symbols = (const ElfW(Sym) *)address;
            break;
        case DT_STRTAB:
            binding.strings = (const char *)address;
            break;
        case DT_RELA:
            binding.tables[0].first = (const ElfW(Rela) *)address;
            break;
        case DT_RELASZ:
            binding.tables[0].count = d->d_un.d_val / sizeof(ElfW(Rela));
            break;
        case DT_JMPREL:
            binding.tables[1].first = (const ElfW(Rela) *)address;
            break;
        case DT_PLTRELSZ:
            binding.tables[1].count = d->d_un.d_val / sizeof(ElfW(Rela));
            break;
        default:
            break;
        }
    }
    return binding;
}

static bool rebind_is_call(const char *name)
{
    return name[0] == 'c' && name[1] == 'l' && isupper((unsigned char)name[2]);
}

/* The slots of one table that hold another one's call; they are set right where @change says so. */
static size_t rebind_table(const struct binding *binding, const struct relocations *table,
                           bool change)
{
    size_t found = 0;
    for (size_t i = 0; i < table->count; i++) {
        const ElfW(Rela) *relocation = &table->first[i];
        size_t index =
            sizeof(void *) == 8 ? ELF64_R_SYM(relocation->r_info) : ELF32_R_SYM(relocation->r_info);
        const ElfW(Sym) *symbol = &binding->symbols[index];
        if (index == 0 || symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0)
            continue;
        const char *name = binding->strings + symbol->st_name;
        uintptr_t *slot = (uintptr_t *)(binding->base + relocation->r_offset);
        uintptr_t own = binding->base + symbol->st_value;
        /* Of whatever kind the relocation is. */
        if (!rebind_is_call(name) || *slot == own || *slot != (uintptr_t)dlsym(RTLD_DEFAULT, name))
            continue;
        found++;
        if (change)
            *slot = own;
    }
    return found;
}

static size_t rebind(const struct binding *binding, bool change)
{
    size_t found = 0;
    for (size_t i = 0; i < ARRAY_SIZE(binding->tables); i++)
        found += rebind_table(binding, &binding->tables[i], change);
    return found;
}

/* What the dynamic linker made read-only after it had bound it. */
struct relro {
    uintptr_t base, start, end;
};

static int rebind_find_relro(struct dl_phdr_info *info, size_t size, void *data)
{
    struct relro *relro = data;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    (void)size;
    if (info->dlpi_addr != relro->base)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_GNU_RELRO)
            continue;
        relro->start = (info->dlpi_addr + segment->p_vaddr) & ~(page - 1);
        relro->end = (info->dlpi_addr + segment->p_vaddr + segment->p_memsz) & ~(page - 1);
    }
    return 1;
}

static bool rebind_protect(const struct relro *relro, int protection)
{
    return relro->end <= relro->start ||
           mprotect((void *)relro->start, relro->end - relro->start, protection) == 0;
}

size_t rebind_own_calls(void *handle)
{
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map)
        return 0;
    struct binding binding = rebind_binding_of(map);
    if (!binding.symbols || !binding.strings || rebind(&binding, false) == 0)
        return 0;
    struct relro relro = {.base = map->l_addr};
    dl_iterate_phdr(rebind_find_relro, &relro);
    if (!rebind_protect(&relro, PROT_READ | PROT_WRITE)) {
        log_warn("%s: its calls stay taken over: its memory cannot be changed", map->l_name);
        return 0;
    }
    size_t changed = rebind(&binding, true);
    rebind_protect(&relro, PROT_READ);
    log_debug("%s: %zu references to its own calls given back", map->l_name, changed);
    return changed;
}
