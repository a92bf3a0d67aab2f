/* Options of sbatch and srun, as where Slurm has the plugins of a site: they are taken, and nothing is done by them.
   plugstack.conf names them behind this plugin: NAME= for one with a value, NAME for one without.
   These few declarations are slurm/spank.h's, which is not installed with Slurm. */
#include <string.h>

struct spank_option {
    char *name, *arginfo, *usage;
    int has_arg, val;
    int (*callback)(int, const char *, int);
};
extern int spank_option_register(void *spank, struct spank_option *option);

const char plugin_name[] = "accepted_options";
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION;
const unsigned int spank_plugin_version = 1;

static int taken(int value, const char *argument, int remote)
{
    (void)value, (void)argument, (void)remote;
    return 0;
}

int slurm_spank_init(void *spank, int argc, char **argv)
{
    int at, failed = 0;
    for (at = 0; at < argc; at++) {
        struct spank_option option = {strdup(argv[at]), "VALUE", "of this site", 0, at, taken};
        char *equals = strchr(option.name, '=');
        if (equals != NULL) {
            *equals = '\0';
            option.has_arg = 1;
        }
        failed |= spank_option_register(spank, &option);
    }
    return failed;
}
