//! The containers of a session: from the user's configuration and the project's `devcontainer.json`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::words::visible;
use process::container::{Alias, ContainerOptions, Containers, Engine, Image};
use settings::Settings;
use settings::devcontainer::{DevContainer, Folder};
use settings::trust::Trust;

use crate::machine::Machine;

/// The most memory and processes, if the user does not say.
const MEMORY: &str = "8g";
const PROCESSES: u64 = 2048;

/// The title of the notice about a container that is not used as described.
pub(crate) const NOTICE: &str = "Container";

/// Makes the containers of a session in a project, if the user wants any. Starts nothing. Also returns what the user should know.
pub fn containers(
    settings: &Settings,
    machine: &Machine,
    project: &Path,
    cwd: &Path,
) -> (Option<Arc<Containers>>, Vec<String>) {
    let workspace = &settings.config.workspace;
    if workspace.container.is_none() && !workspace.devcontainer {
        return (None, Vec::new());
    }
    let mut notices = Vec::new();
    let described = match workspace.devcontainer {
        true => described(settings, project, &mut notices),
        false => None,
    };
    let config = workspace.container.clone().unwrap_or_default();
    let mut images = match (&described, config.image) {
        (Some(described), _) => images_of(described),
        (None, Some(image)) => vec![Image::Named(image)],
        (None, None) => {
            notices.push("No image: commands run in the sandbox.".to_owned());
            return (None, notices);
        }
    };
    let mut options = ContainerOptions {
        engines: machine.engines(config.engine.as_deref()),
        images: Vec::new(),
        network: config.network,
        memory: config.memory.unwrap_or_else(|| MEMORY.to_owned()),
        cpus: config.cpus,
        processes: config.processes.unwrap_or(PROCESSES),
        user: config.user,
        environment: config.env,
        mounts: config.mounts,
        aliases: Vec::new(),
        run_args: config.run_args,
        after_create: Vec::new(),
        scratch: machine.scratch().to_owned(),
    };
    if let Some(described) = described {
        options.user = options.user.or(described.user);
        let mut environment = described.env;
        environment.append(&mut options.environment);
        options.environment = environment;
        options.mounts.extend(described.mounts);
        let real = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
        let alias = |inside| Alias { directory: real.clone(), inside, is_read_only: false };
        options.aliases =
            described.folder.filter(|it| *it != real).map(alias).into_iter().collect();
        let aliases = described.folders.into_iter().map(|Folder { path, inside, is_read_only }| {
            Alias { directory: path, inside, is_read_only }
        });
        options.aliases.extend(aliases);
        options.after_create = described.after_create;
    }
    options.images.append(&mut images);
    (Some(Arc::new(Containers::new(options))), notices)
}

/// Returns the names that directories have only in the container, with the directories.
pub(crate) fn aliases(containers: Option<&Containers>) -> Vec<(PathBuf, PathBuf)> {
    let all = containers.map(Containers::aliases).unwrap_or_default();
    all.iter().map(|alias| (alias.inside.clone(), alias.directory.clone())).collect()
}

/// Reads the project's `devcontainer.json`, if it is trusted.
fn described(
    settings: &Settings,
    project: &Path,
    notices: &mut Vec<String>,
) -> Option<DevContainer> {
    let data = settings.directories.data.as_deref();
    match DevContainer::read(project, data, &*settings.reader) {
        Ok(Some(found)) => match &found.trust {
            Trust::Trusted => {
                notices.extend(found.problems.iter().map(|problem| visible(problem)));
                Some(found)
            }
            Trust::Not(why) => {
                notices.push(visible(&format!(
                    "{} is not used: {why}. To review and trust it, run `purlin trust {}`.",
                    found.file.display(),
                    project.display()
                )));
                None
            }
        },
        Ok(None) => None,
        Err(why) => {
            notices.push(visible(&why));
            None
        }
    }
}

/// Returns the images to make: the described one, and one with its features on top.
fn images_of(described: &DevContainer) -> Vec<Image> {
    let mut images = Vec::new();
    let base = match (&described.build, &described.image) {
        (Some(build), _) => {
            images.push(Image::Built {
                name: build.name.clone(),
                context: build.context.clone(),
                dockerfile: build.text.clone(),
                args: build.args.clone(),
            });
            build.name.clone()
        }
        (None, image) => {
            let image = image.clone().unwrap_or_default();
            images.push(Image::Named(image.clone()));
            image
        }
    };
    let Some(context) = described.file.parent().filter(|_| !described.features.is_empty()) else {
        return images;
    };
    let real = context.canonicalize().unwrap_or_else(|_| context.to_owned());
    let mut text = format!("FROM {base}\nUSER 0\n");
    for (number, (place, options)) in described.features.iter().enumerate() {
        let Ok(relative) = place.strip_prefix(&real) else { continue };
        let inside = format!("/tmp/purlin-features/{number}");
        text.push_str(&format!("COPY [\"{}\", \"{inside}\"]\n", relative.display()));
        let variables: String = options
            .iter()
            .map(|(name, value)| {
                format!("{name}={} ", settings::quote_all(std::iter::once(value.as_str())))
            })
            .collect();
        text.push_str(&format!("RUN cd {inside} && {variables}/bin/sh ./install.sh\n"));
    }
    let name = described.features_image.clone();
    images.push(Image::Built { name, context: real, dockerfile: text, args: Vec::new() });
    images
}

impl Machine {
    /// Returns the engines on this machine, the wanted one or all.
    #[must_use]
    pub fn engines(&self, wanted: Option<&str>) -> Vec<Engine> {
        Engine::find(wanted, self.search(), &self.engine_environment)
    }
}
